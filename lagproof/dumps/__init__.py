"""Anybody's rollouts as token batches, and what can be said of them: ``doctor`` and ``whatif``."""
