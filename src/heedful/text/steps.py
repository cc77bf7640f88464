"""Limits on how much an untrusted `tokenizer.json` can lengthen a text, checked before the library reads the file.

A file of one kilobyte can contain forty replacements of a by aa, which turn one letter into a terabyte. So the steps of
normalizer, pre-tokenizer, post-processor and decoder are counted, and their growth factors multiplied.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterator
from typing import Any

from heedful.errors import FolderError, quote

MOST_STEPS = 64  # of each component, those inside of others included
USUAL_GROWTH = 32  # of a normalizer that is not measured at use
MOST_GROWTH = 1 << 20  # of a normalizer, in theory: what a text becomes is measured where it could be too much
MOST_CUTTING = 64  # growth by any other component
MOST_STRING = 64  # characters that a step puts in at a place, or that a model puts before or behind its pieces
MOST_ADDED = 1 << 24  # characters of all added tokens, which the library normalizes when it opens the file
MOST_WORD = 1000  # characters of a word that WordPiece looks at: its time grows with their square
NESTED = ("normalizers", "pretokenizers", "processors", "decoders")
# Characters that one character can become, by the type of a step; the longest decomposition has 18 (U+FDFA).
GROWTH = {
    "NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "BertNormalizer": 12, "Nmt": 1, "ByteLevel": 4,
    "Metaspace": 2, "WordPiece": 2, "BPEDecoder": 2, "CTC": 1,
}  # fmt: skip


def check_steps(text: str, where: str) -> int:
    """The factor by which the normalizer can lengthen a text; an error if a component exceeds its limit."""
    try:
        content = json.loads(text, object_pairs_hook=_unambiguous)
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{where} is damaged ({quote(str(error))}); copy it again from where it came from.") from None
    if not isinstance(content, dict):
        raise FolderError(f"{where} holds a JSON {type(content).__name__} where an object is expected.")
    growth = 1
    for component in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        steps = list(_steps(content.get(component)))
        if len(steps) > MOST_STEPS:
            raise FolderError(
                f"{where}: its {component} has {len(steps)} steps, and more than {MOST_STEPS} make no sense."
            )
        try:
            product = math.prod(map(_growth, steps))
        except (TypeError, ValueError, AttributeError):
            raise FolderError(f"{where} is damaged (its {component}); copy it again from where it came from.") from None
        most = MOST_GROWTH if component == "normalizer" else MOST_CUTTING
        if product > most:
            raise FolderError(
                f"{where}: its {component} can make a text {product:.3g} times as long, and more than {most:,} times "
                "make no sense."
            )
        growth = product if component == "normalizer" else growth
    _check_model(content.get("model"), where)
    added = content.get("added_tokens") or []
    if (
        growth * sum(len(str(token)) for token in (added if isinstance(added, list) else []))
        > MOST_ADDED * USUAL_GROWTH
    ):
        raise FolderError(f"{where}: its normalizer can make {len(added):,} added tokens longer than makes sense.")
    return growth


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys, which this parser and the library's may resolve differently."""
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return content


def _steps(component: Any) -> Iterator[dict[str, Any]]:
    """Every step of a component, nested sequences included."""
    stack = [component]
    while stack:
        step = stack.pop()
        if isinstance(step, dict):
            yield step
            for name in NESTED:
                if isinstance(inner := step.get(name), list):
                    stack += inner


def _growth(step: dict[str, Any]) -> int:
    """The factor by which one step can lengthen a text; old files have no types, so the keys decide."""
    if "content" in step and "pattern" in step:
        pattern = step["pattern"]
        literal = pattern.get("String") if isinstance(pattern, dict) else pattern
        inserted = _length(step["content"])
        return max(1, -(-inserted // len(literal))) if literal else 1 + inserted  # an expression can match nothing
    if "prepend" in step:
        return 1 + _length(step["prepend"])
    if "precompiled_charsmap" in step:
        return _longest(step["precompiled_charsmap"])
    if "single" in step and "pair" in step:  # a template: how often it repeats the text
        return max(1, *(sum("Sequence" in part for part in step[name]) for name in ("single", "pair")))
    for name in ("replacement", "prefix", "suffix"):
        if isinstance(step.get(name), str):
            _length(step[name])
    return GROWTH.get(str(step.get("type")), 1)


def _longest(charsmap: Any) -> int:
    """The longest replacement in SentencePiece's table: a size, a trie of so many bytes, and texts that end with 0."""
    if not charsmap:
        return 1
    try:
        table = base64.b64decode(charsmap, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    longest = max(map(len, texts.split(b"\0")))
    if longest > MOST_STRING:
        raise ValueError(f"a replacement of more than {MOST_STRING} bytes")
    return max(1, longest)


def _length(text: str) -> int:
    if len(text) > MOST_STRING:
        raise ValueError(f"a string of more than {MOST_STRING} characters")
    return len(text)


def _check_model(model: Any, where: str) -> None:
    """Refuse a model whose time per word is unbounded."""
    if not isinstance(model, dict):
        raise FolderError(f"{where} is damaged (it has no model); copy it again from where it came from.")
    word = model.get("max_input_chars_per_word", 0)
    if type(word) is not int or not 0 <= word <= MOST_WORD:
        raise FolderError(
            f"{where}: max_input_chars_per_word is {quote(word)}, and it must be a number from 0 to {MOST_WORD:,}."
        )
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "unk_token"):
        if isinstance(affix := model.get(name), str) and len(affix) > MOST_STRING:
            raise FolderError(
                f"{where}: {name} has {len(affix):,} characters, and more than {MOST_STRING:,} make no sense."
            )
