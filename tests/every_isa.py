"""Run the tests that compute once with every instruction set: `python tests/every_isa.py [pytest's options and files]`.

With every library of the engine that this machine can load (HEEDFUL_ISA), with torch instead of the engine, and with
torch's own instruction set lowered (ATEN_CPU_CAPABILITY).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from heedful.native.isa import OFF, VARIABLE, supported_instruction_sets

COMPUTING = [
    "tests/native", "tests/ops", "tests/model", "tests/search", "tests/training", "tests/inference",
    "tests/inside/test_align.py", "tests/inside/test_record.py", "tests/serve/test_continuous_batching.py",
    "tests/cli/test_use.py", "tests/cli/test_quantize.py",
]  # fmt: skip


def main(arguments: list[str]) -> int:
    """0 if all runs passed."""
    runs = [{VARIABLE: name} for name in (*supported_instruction_sets()[0], OFF)]
    runs += [{"ATEN_CPU_CAPABILITY": name} for name in ("avx2", "default")]
    results = []
    for changes in runs:
        named = " ".join(f"{name}={value}" for name, value in changes.items())
        print(f"== {named}", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", *(arguments or ["-n", "auto", "-m", "not long", *COMPUTING])]
        code = subprocess.run(command, env=os.environ | changes, check=False).returncode
        results.append((named, code, time.monotonic() - began))
    for named, code, seconds in results:
        print(f"{named:30} {'passed' if code == 0 else 'FAILED'} after {seconds:.0f} s")
    return int(any(code for _, code, _ in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
