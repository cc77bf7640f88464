"""Which languages a model translates, and what they are called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from heedful.files import read_json

NAMES = {
    "af": "Afrikaans", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali",
    "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
    "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish",
    "fr": "French", "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian",
    "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese",
    "ka": "Georgian", "kk": "Kazakh", "ko": "Korean", "la": "Latin", "lt": "Lithuanian", "lv": "Latvian",
    "mk": "Macedonian", "ms": "Malay", "mt": "Maltese", "nb": "Norwegian Bokmål", "nl": "Dutch", "nn": "Nynorsk",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak",
    "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil",
    "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
CODE = r"[a-z]{2,3}(?:_[A-Za-z]{2,4})?"


@dataclass(frozen=True)
class LanguagePair:
    """Two language codes; `source` and `target` where nobody said which they are."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


UNKNOWN = LanguagePair("source", "target")


def language_name(code: str) -> str:
    """`de` -> German; the code itself if it has no name here."""
    if code in (UNKNOWN.source, UNKNOWN.target):
        return code.capitalize()
    return NAMES.get(_plain(code), code)


def pair_of(name: str, folder: Path) -> LanguagePair:
    """What a model translates: by its name, else by the files it was trained on, else by its folder's name."""
    return _named(name) or _trained(folder) or _named(folder.resolve().name) or UNKNOWN


def _plain(code: str) -> str:
    """pt_BR -> pt."""
    return code.partition("_")[0]


def _named(name: str) -> LanguagePair | None:
    """opus-mt-en-de -> en, de; a part of a longer name counts if it is a language with a name."""
    found = re.fullmatch(rf"(?:(.*)[-_.])?({CODE})-({CODE})", name)
    if found is None:
        return None
    before, source, target = found.groups()
    known = _plain(source) in NAMES and _plain(target) in NAMES
    return LanguagePair(source, target) if known or before is None else None


def _trained(folder: Path) -> LanguagePair | None:
    """The endings of the files in run.json, where training wrote one: train.en.gz and train.de."""
    try:
        data = (read_json(folder, "run.json") or {})["config"]["data"]
        ends = [Path(str(data[side]).removesuffix(".gz")).suffix[1:] for side in ("source", "target")]
    except (KeyError, TypeError):
        return None
    return LanguagePair(*ends) if all(re.fullmatch(CODE, end) and end in NAMES for end in ends) else None
