"""Metrics of translations and labels."""
