"""Small corpora written by the tests, and what every message to a user has in common."""

import gzip
from pathlib import Path

import pytest

from heedful.config import RunConfig, load_config
from heedful.errors import HeedfulError

WHO = ["dog", "cat", "tree", "house", "child", "bird", "king", "fish"]
DOES = ["sees", "likes", "hears", "finds", "wants"]
WORDS = {"dog": "Hund", "cat": "Katze", "tree": "Baum", "house": "Haus", "child": "Kind", "bird": "Vogel"} | {
    "king": "König",
    "fish": "Fisch",
    "sees": "sieht",
    "likes": "mag",
    "hears": "hört",
    "finds": "findet",
    "wants": "will",
}


def sentence_pairs() -> list[tuple[str, str]]:
    """320 pairs with different sources."""
    pairs = []
    for a in WHO:
        for verb in DOES:
            for b in WHO:
                pairs.append((f"The {a} {verb} the {b}.", f"{WORDS[a]} {WORDS[verb]} {WORDS[b]}."))
    return pairs


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def write_gz(path: Path, content: str) -> Path:
    return write(path, gzip.compress(content.encode("utf-8")))


def write_tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    return write(path, "".join(f"{source}\t{target}\n" for source, target in pairs))


def config(text: dict[str, object] | None = None, train: dict[str, object] | None = None, **data: object) -> RunConfig:
    return load_config(None, data=data, text=text or {}, train=train or {})


def told(error: pytest.ExceptionInfo[HeedfulError], *words: object) -> None:
    """The message is one sentence and names what went wrong and where."""
    message = str(error.value)
    assert message.endswith(".") and "\n" not in message
    for word in words:
        assert str(word) in message
        message = message.replace(str(word), "")  # paths hold dots of their own
    assert ". " not in message
