"""Transformers of your own: trained, used and looked into on the machine you have."""

__version__ = "0.1.0"
