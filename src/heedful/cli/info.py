"""`heedful info`."""

from __future__ import annotations

import importlib.util
import platform


def info() -> None:
    """Print what computes here: versions, the compiled engine and its instruction set, threads, torch.

    HEEDFUL_ISA chooses a lower instruction set (portable, avx2, avx512, avx512bf16), or torch alone (none).
    """
    from heedful import __version__
    from heedful.native.engine import chosen, fitting
    from heedful.ops.threads import num_threads

    engine = chosen()  # which logs why there is none, unless it was turned off
    print(f"heedful {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    if engine is None:
        print("engine: none; torch computes")
    else:
        why = f"; none higher because {engine.why_not_higher}" if engine.why_not_higher else ""
        print(f"engine: {engine.path}")
        print(f"instruction set: {engine.name}; available: {', '.join(engine.available)}{why}")
        print(f"precision by default: int8 to translate, {fitting('auto', engine.library)} to train a translator")
    print(f"threads: {num_threads()}")
    print(f"torch: {_torch()}")


def _torch() -> str:
    if importlib.util.find_spec("torch") is None:
        return "not installed"
    import torch

    gpus = f", {torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else ""
    return f"{torch.__version__}, CPU capability {torch.backends.cpu.get_cpu_capability()}{gpus}"
