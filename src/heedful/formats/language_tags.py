"""Language tags (BCP 47) of files: which language of a file a user means, with fall-back over regions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LANGUAGE_TAG = re.compile(r"([a-z]{2})(?:[-_][A-Za-z]{2,4})?")
ISO_639_1 = (
    "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el "
    "en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it "
    "iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt "
    "my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk "
    "sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi "
    "yo za zh zu"
)


@dataclass(frozen=True)
class WantedLanguages:
    """The languages that a user wants to read; None where any will do."""

    source: str | None = None
    target: str | None = None

    def are_among(self, tags: Sequence[str]) -> bool:
        """Whether every wanted language is one of these."""
        return all(best_match(language, tags) for language in (self.source, self.target) if language)


def is_language_tag(tag: str) -> bool:
    """Whether a tag is a language of ISO 639-1, with or without a script or region."""
    found = LANGUAGE_TAG.fullmatch(tag)
    return found is not None and found[1] in ISO_639_1.split()


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
