"""`heedful info`."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.native.isa import LibraryChoice

INSTALL = "pip install 'heedful[train]'"


def info() -> None:
    """Print versions and what computes what. The compiled engine with its instruction set, threads and the torch build.

    HEEDFUL_ISA selects an instruction set (x86-64: portable, avx2, avx512, avx512bf16, amx; aarch64: portable,
    dotprod), or torch only (none). By default, the highest one of the CPU is used.
    """
    from heedful import __version__
    from heedful.native.engine import library_choice
    from heedful.ops.threads import num_threads

    engine = library_choice()  # logs why there is no engine, unless HEEDFUL_ISA=none
    print(f"heedful {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    if engine is None:
        print("engine: none")
    else:
        why = f"; none higher because {engine.why_not_higher}" if engine.why_not_higher else ""
        print(f"engine: {engine.path}")
        print(f"instruction set: {engine.name}; available: {', '.join(engine.available)}{why}")
    print(f"threads: {num_threads()}")
    print(f"torch: {_torch_version()}")
    for work, backend in _backends(engine):
        print(f"{work}: {backend}")


def _backends(engine: LibraryChoice | None) -> Iterator[tuple[str, str]]:
    """What computes each kind of work by default, and in which precision."""
    from heedful.config import ModelConfig
    from heedful.native import supports
    from heedful.native.engine import training_precision

    torch = "torch" if importlib.util.find_spec("torch") else f"needs torch ({INSTALL})"
    for work, precision, changes in (
        ("translate, summarize", "int8", {"family": "encoder-decoder"}),
        ("score, align", "float32", {"family": "encoder-decoder"}),
        ("transcribe", "int8", {"family": "encoder-decoder", "features": 80}),
        ("generate", "float32", {"family": "decoder"}),
        ("fill-mask, embed, classify", "float32", {"family": "encoder"}),
    ):
        compiled = engine is not None and supports(ModelConfig.model_validate({"vocab_size": 8} | changes))
        yield work, f"engine, {precision}" if compiled else torch
    if engine is not None and torch == "torch":
        torch = f"engine, {training_precision('auto', engine.library)}; torch where the log of the run says so"
    yield "train", torch


def _torch_version() -> str:
    if importlib.util.find_spec("torch") is None:
        return f"not installed; {INSTALL} installs it"
    import torch

    gpus = f", {torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else ""
    return f"{torch.__version__}, CPU capability {torch.backends.cpu.get_cpu_capability()}{gpus}"
