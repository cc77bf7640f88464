"""serve/api."""
