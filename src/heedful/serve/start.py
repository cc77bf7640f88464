"""Where the process of a model begins. This module is imported by the server too, and must not import torch."""

from multiprocessing.connection import Connection
from pathlib import Path


def process(connection: Connection, folder: Path, threads: int, precision: str) -> None:
    """Become the process of a model."""
    from heedful.serve.worker import process

    process(connection, folder, threads, precision)
