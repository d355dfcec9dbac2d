"""Channels: how weights go from the learner to the engines."""
