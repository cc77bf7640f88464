"""Language tags (BCP 47) of files: which language of a file a user means, with fall-back over regions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class WantedLanguages:
    """The languages that a user wants to read; None where any will do."""

    source: str | None = None
    target: str | None = None


def normalize_tag(tag: str) -> str:
    """'pt_BR' -> 'pt-br'."""
    return tag.strip().replace("_", "-").lower()


def primary(tag: str) -> str:
    """The language without script and region."""
    return normalize_tag(tag).partition("-")[0]


def match_rank(wanted: str, present: str) -> int | None:
    """How well a language of a file fits: 0 is the same tag, None another language.

    `en` also means `en-US`; `en-GB` falls back to `en`, then to another region of English.
    """
    a, b = normalize_tag(wanted), normalize_tag(present)
    if a == b:
        return 0
    if a.startswith(f"{b}-") or b.startswith(f"{a}-"):
        return 1
    return 2 if a and primary(a) == primary(b) else None


def best_match(wanted: str, present: Iterable[str]) -> str | None:
    """The language of a file that fits best, if any does."""
    ranked = [(rank, tag) for tag in present if (rank := match_rank(wanted, tag)) is not None]
    return min(ranked, key=lambda both: both[0])[1] if ranked else None
