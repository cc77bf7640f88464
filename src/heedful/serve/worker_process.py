"""Where the process of a model begins. This module is imported by the server too, and must not import torch."""

import socket
from pathlib import Path


def process(pipe: socket.socket, folder: Path, threads: int, precision: str, shortlist: bool) -> None:
    """Become the process of a model."""
    from heedful.serve.worker import process

    process(pipe, folder, threads, precision, shortlist)
