"""From groups of samples to an optimiser step."""
