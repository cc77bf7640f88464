"""Optimizers: Adam and Muon."""
