"""Pure functions of tensors: no configuration, no logging, no state."""
