"""Small damage to a model folder, at random: bytes, JSON values, names, sizes, missing files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

VALUES: list[Any] = [
    None, True, -1, 0, 1, 2, 3, 7, 10**6, 10**12, 10**30, 0.5, -0.5, 1e300, "", "gelu", "x" * 5000, [], [1], [[[]]], {},
    {"a": {"b": 1}}, "../../etc/passwd", "\x1b[31m\x00",
]  # fmt: skip


def mutate(path: Path, draw: random.Random) -> None:
    """Change one to three things."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        files = sorted(file for file in path.iterdir() if file.is_file())
        file = draw.choice(files)
        if file.suffix == ".json" and draw.random() < 0.7:
            _change_json(file, draw)
        else:
            draw.choice((_flip, _flip, _cut, _repeat, _remove, _swap, _fill))(file, draw)


def _change_json(file: Path, draw: random.Random) -> None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return
    if not isinstance(content, dict) or not content:
        return
    key = draw.choice(sorted(content))
    action = draw.random()
    if action < 0.7:
        content[key] = draw.choice(VALUES)
    elif action < 0.85:
        del content[key]
    else:
        content[draw.choice(["n_inner", "vocab_size", "model_type", "d_model", "</s>", "weight_map"])] = draw.choice(
            VALUES
        )
    file.write_text(json.dumps(content), encoding="utf-8")


def _flip(file: Path, draw: random.Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(draw.choice((1, 3, 30))):
        if data:
            place = draw.randrange(min(len(data), draw.choice((16, 2000, len(data)))))
            data[place] = draw.randrange(256)
    file.write_bytes(data)


def _cut(file: Path, draw: random.Random) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: draw.randrange(len(data) + 1)])


def _repeat(file: Path, draw: random.Random) -> None:
    data = file.read_bytes()
    place = draw.randrange(len(data) + 1)
    file.write_bytes(data[:place] + data[max(0, place - 50) :])


def _remove(file: Path, draw: random.Random) -> None:
    file.unlink()


def _swap(file: Path, draw: random.Random) -> None:
    other = draw.choice(sorted(each for each in file.parent.iterdir() if each.is_file()))
    one, two = file.read_bytes(), other.read_bytes()
    file.write_bytes(two)
    other.write_bytes(one)


def _fill(file: Path, draw: random.Random) -> None:
    file.write_bytes(draw.randbytes(draw.choice((0, 1, 100, 5000))))
