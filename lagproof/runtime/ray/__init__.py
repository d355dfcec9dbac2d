"""The two sides of a run in processes of their own, under Ray: a learner, rollout workers, and this driver.

::

    driver    holds the scheduler and writes rows, alarms and the record of the schedule; sees no group and no weight
    learner   one actor: trains, publishes, writes rollouts and checkpoints
    workers   actors: sample, grade, and evaluate when they have nothing to sample

Commands are calls of actors, events are their answers; groups and weights stay in the object store and are passed by
reference. ``docs/ray.md`` says what a user has to know.
"""
