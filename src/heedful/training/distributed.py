"""Data-parallel training: under `torchrun` each process is a rank, and gradients are summed over ranks.

The model does not know about it. All gradients are one flat tensor, so an update needs one all-reduce.
"""

import os
from collections.abc import Iterable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from heedful.errors import SettingError


class Distributed:
    """The current process as a rank of its process group; a group of one unless `torchrun` started it."""

    def __init__(self, device: str = "auto") -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        elif device == "cuda" and not torch.cuda.is_available():
            raise SettingError("train.device is cuda, but PyTorch finds no GPU; leave it out, or set it to cpu.")
        self.device = torch.device(device)
        if device == "cuda":
            local, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
            if local >= gpus:
                raise SettingError(
                    f"there are more processes than GPUs ({gpus}); "
                    f"start {gpus} processes (torchrun --nproc-per-node {gpus}), or set train.device=cpu."
                )
            self.device = torch.device(device, local)
            torch.cuda.set_device(self.device)
        if self.world > 1 and not dist.is_initialized():
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=timedelta(hours=12))  # ranks wait while one validates

    @property
    def main(self) -> bool:
        """Whether this rank writes files and reports."""
        return self.rank == 0

    def sum(self, values: Tensor) -> None:
        """Sum a tensor over all ranks, in place."""
        if self.world > 1:
            dist.all_reduce(values)

    def share(self, values: Iterable[Tensor]) -> None:
        """Broadcast tensors from the main rank: other machines may round differently."""
        if self.world > 1:
            for value in values:
                shared = value.detach().to(self.device)
                dist.broadcast(shared, src=0)
                value.data.copy_(shared)

    def from_main(self, value: float) -> float:
        """Broadcast a number from the main rank; also a barrier."""
        if self.world == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.broadcast(shared, src=0)
        return float(shared.item())

    def close(self) -> None:
        """Leave the group."""
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()
