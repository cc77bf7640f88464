"""Which backend computes a loaded model in a test."""

from torch.nn import Module


def leave_to_torch(model: Module) -> None:
    """From now on PyTorch computes this model, as it does every model with a forward hook."""
    model.register_forward_hook(lambda *_: None)
