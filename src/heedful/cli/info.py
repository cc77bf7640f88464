"""`heedful info`."""

from __future__ import annotations

import importlib.util
import platform


def info() -> None:
    """Print versions, the compiled engine with its instruction set, threads and the torch build.

    HEEDFUL_ISA selects a lower instruction set (portable, avx2, avx512, avx512bf16), or torch only (none).
    """
    from heedful import __version__
    from heedful.native.engine import library_choice, training_precision
    from heedful.ops.threads import num_threads

    engine = library_choice()  # logs why there is no engine, unless HEEDFUL_ISA=none
    print(f"heedful {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    if engine is None:
        print("engine: none; torch is used")
    else:
        why = f"; none higher because {engine.why_not_higher}" if engine.why_not_higher else ""
        print(f"engine: {engine.path}")
        print(f"instruction set: {engine.name}; available: {', '.join(engine.available)}{why}")
        print(
            f"default precision: int8 to translate, {training_precision('auto', engine.library)} to train a translator"
        )
    print(f"threads: {num_threads()}")
    print(f"torch: {_torch_version()}")


def _torch_version() -> str:
    if importlib.util.find_spec("torch") is None:
        return "not installed"
    import torch

    gpus = f", {torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else ""
    return f"{torch.__version__}, CPU capability {torch.backends.cpu.get_cpu_capability()}{gpus}"
