"""Joins engine, learner and channel into a run, and is the only room that writes to disk."""
