"""training/init."""
