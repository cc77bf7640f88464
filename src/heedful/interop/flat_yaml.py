"""Reads and writes YAML as Marian does: one table whose values are numbers, words, or lists of them.

Nested tables and text over several lines are refused: no file of Marian has them. Anchors and tags mean nothing here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from heedful.errors import FolderError, quote

Scalar = bool | int | str

QUOTED = re.compile(r""""(?:[^"\\]|\\.)*+"|'(?:[^']|'')*+'""", re.DOTALL)
EXPLICIT_KEY = re.compile(r"^\? (.*)\n: ", re.MULTILINE)
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "a": "\a", "v": "\v", "f": "\f", "e": "\x1b"}


def parse(text: str, where: Path | str) -> dict[str, Scalar | list[Scalar]]:
    """A table by key; keys are always text."""
    table: dict[str, Scalar | list[Scalar]] = {}
    items: list[Scalar] | None = None  # of the list that the last key began
    lines = EXPLICIT_KEY.sub(r"\1: ", text).split("\n")
    for number, line in enumerate((line.rstrip("\r ") for line in lines), 1):
        if not line or line.startswith("#") or line == "---":
            continue
        if items is not None and (item := line.lstrip()).startswith("- "):
            items.append(_scalar(item[2:]))
            continue
        entry = _entry(line)
        if entry is None:
            raise FolderError(f"{where}: line {number}, {quote(line)}, is no YAML of the kind that Marian writes.")
        key, value = entry
        if key in table:
            raise FolderError(f"{where}: line {number} holds {quote(key)}, and so does another line.")
        items = None if value else []
        table[key] = _value(value) if items is None else items
    return table


def _entry(line: str) -> tuple[str, str] | None:
    """Key and value; a search by regular expression would take quadratic time on long runs of spaces."""
    if quoted := QUOTED.match(line):
        key, rest = _text(quoted[0]), line[quoted.end() :].lstrip()
        return (key, rest[1:].strip()) if rest.startswith(":") else None
    plain, found, value = f"{line} ".partition(": ")
    return (plain.rstrip(), value.strip()) if found and not line.startswith((" ", "\t", '"', "'")) else None


def dump(table: Mapping[str, Scalar | Sequence[Scalar]]) -> str:
    """A table as text; keys and words are quoted, with the escapes that YAML shares with JSON."""
    return "".join(f"{_dumped(key)}: {_dumped(value)}\n" for key, value in table.items())


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _value(value: str) -> Scalar | list[Scalar]:
    if value.startswith("[") and value.endswith("]"):
        return [_scalar(item.strip()) for item in value[1:-1].split(",") if item.strip()]
    return _scalar(value)


def _scalar(value: str) -> Scalar:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else _text(value)


def _text(value: str) -> str:
    """The text that a plain or quoted word stands for."""
    if not QUOTED.fullmatch(value):
        return value
    if value[0] == "'":
        return value[1:-1].replace("''", "'")
    return ESCAPE.sub(_unescaped, value[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code is None:
        return ESCAPED.get(found[4], found[4])
    return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else "\N{REPLACEMENT CHARACTER}"
