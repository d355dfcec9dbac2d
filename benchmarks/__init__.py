"""Speed and memory, as ratios within one run on one thread; never asserted in a test: ``python -m benchmarks``."""
