"""What a model attends to, made visible."""

from heedful.inside.picture import draw_cross_attention

__all__ = ["draw_cross_attention"]
