"""Language models: the two tiny ones that ship, loading, and log-probabilities that fit in memory."""
