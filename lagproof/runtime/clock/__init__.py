"""Time without waiting for it: an event queue in which workers sample and a learner trains at the same time.

``cluster.py`` is the queue, ``durations.py`` how long things take; ``planner.py`` runs the scheduler over them without
a model, and ``runtime/simulated.py`` with the real engine and learner. Nothing here imports torch.
"""
