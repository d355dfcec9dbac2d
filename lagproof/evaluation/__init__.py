"""How good a model is: avg@k, pass@k and maj@k with intervals over problems. Imports no torch."""
