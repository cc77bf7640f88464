"""Audio frames -> positions of the encoder: two convolutions over time, as in Whisper (Radford et al., 2022)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import ModelConfig
from heedful.model.spec import FRONT_END_KERNEL


class ConvFrontEnd(nn.Module):
    """GELU(conv(GELU(conv(x)))), kernels of three frames; with stride 2 only the second convolution strides."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.stride = config.feature_stride
        width, kernel, padding = config.d_model, FRONT_END_KERNEL, FRONT_END_KERNEL // 2
        self.first = nn.Conv1d(config.features, width, kernel, self.stride // 2, padding)
        self.second = nn.Conv1d(width, width, kernel, 2, padding)

    def mask(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """(B, frames, F), (B,) real positions -> (B, 1, 1, S): True at real positions."""
        positions = torch.arange(frames.size(1) // self.stride, device=frames.device)
        return (positions < lengths.unsqueeze(1))[:, None, None]

    def forward(self, frames: Tensor) -> Tensor:
        """(B, frames, F), a multiple of the stride -> (B, S, D).

        A real position reads at most one frame of padding, and that is zero, as beyond the end of a batch: a recording
        gets the same positions in any batch.
        """
        x = F.gelu(self.first(frames.transpose(1, 2)))  # (B, D, 2 * S)
        x = F.gelu(self.second(x))  # (B, D, S)
        return x.transpose(1, 2)
