"""Audio files -> samples -> windows -> log-mel frames, with NumPy alone. Knows no text, no model and no torch."""
