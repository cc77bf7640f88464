"""model/baselines."""
