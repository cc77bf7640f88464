"""Documents of 4,096 tokens: a summarizer with window attention trains and decodes in bounded memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LENGTH, HEADS, BATCH = 4096, 4, 2
ALL_SCORES = 4 * BATCH * HEADS * LENGTH**2  # bytes of the attention scores of one layer, if all were computed at once
PROGRAM = """
import json, random, resource, sys
import heedful

def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

length, heads, batch, out = *map(int, sys.argv[1:4]), sys.argv[4]
numbers = random.Random(1)
words = [a + b + c for a in "klmst" for b in "aeiou" for c in ("na", "ri", "to", "s")]
documents = [(" ".join(numbers.choices(words, k=length + 100)), "kana tos") for _ in range(6)]
before = peak()
shape = {"d_model": 32, "d_ff": 64, "n_heads": heads, "encoder_layers": 2, "decoder_layers": 1}
summarizer = heedful.train(
    pairs=documents[:5], valid_pairs=documents[5:], task="summarization", out=out, preset="tiny",
    model=shape | {"attention": "window", "decoder_attention": "full"},
    train={"max_updates": 2, "checkpoint_every": 2, "batch_tokens": batch * length, "threads": 1},
    data={"max_source_length": length},
)
notices = []
summarizer.notice = notices.append
trained = peak()
summaries = summarizer.summarize([text for text, _ in documents], max_length=8)
print(json.dumps({
    "trained": trained - before, "decoded": peak() - before, "summaries": len(summaries), "notices": notices,
    "positions": summarizer.max_length, "attention": summarizer.configs[0].attention,
}))
"""


@pytest.mark.long
def test_long_documents_take_bounded_memory(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, (LENGTH, HEADS, BATCH)), str(tmp_path / "out")],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["attention"] == "window" and result["positions"] == LENGTH + 1
    assert result["summaries"] == 6
    assert all(f"this model takes {LENGTH} at once: the rest is not read" in notice for notice in result["notices"])
    assert max(result["trained"], result["decoded"]) < ALL_SCORES * 2 / 3
