"""Engines: whatever samples responses with one version of the policy's weights at a time."""
