"""What a batch says about itself: mismatch, balance, age. Token batches in, typed metrics out."""
