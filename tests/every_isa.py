"""Run the tests that compute once with every instruction set: `python tests/every_isa.py [pytest's options and files]`.

What the engine computes, with every library of it that this machine can load (HEEDFUL_ISA) and with torch instead; what
torch computes, with its own instruction set lowered (ATEN_CPU_CAPABILITY).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from heedful.native.isa import OFF, VARIABLE, supported_instruction_sets

ENGINE = [
    "tests/native", "tests/training", "tests/inference", "tests/inside/test_align.py",
    "tests/serve/test_continuous_batching.py", "tests/cli/test_use.py", "tests/cli/test_quantize.py",
]  # fmt: skip
TORCH = [
    "tests/ops", "tests/model", "tests/search", "tests/training", "tests/native", "tests/inside/test_align.py",
    "tests/inside/test_record.py",
]  # fmt: skip


def main(arguments: list[str]) -> int:
    """0 if all runs passed."""
    runs = [(VARIABLE, name, ENGINE) for name in (*supported_instruction_sets()[0], OFF)]
    runs += [("ATEN_CPU_CAPABILITY", name, TORCH) for name in ("avx2", "default")]
    results = []
    for variable, value, tests in runs:
        named = f"{variable}={value}"
        print(f"== {named}", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", *(arguments or ["-n", "auto", "-m", "not long", *tests])]
        code = subprocess.run(command, env=os.environ | {variable: value}, check=False).returncode
        results.append((named, code, time.monotonic() - began))
    for named, code, seconds in results:
        print(f"{named:30} {'passed' if code == 0 else 'FAILED'} after {seconds:.0f} s")
    return int(any(code for _, code, _ in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
