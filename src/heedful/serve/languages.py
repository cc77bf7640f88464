"""Language pairs of translators, guessed from names and files, and the English names of languages."""

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
    """Two language codes; `source` and `target` if they are unknown."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


UNKNOWN = LanguagePair("source", "target")


def language_name(code: str) -> str:
    """`de` -> German; the code itself if it has no name here."""
    if code in (UNKNOWN.source, UNKNOWN.target):
        return code.capitalize()
    return NAMES.get(_base_language(code), code)


def guess_language_pair(name: str, folder: Path) -> LanguagePair:
    """The language pair of a model: from its name, else from its training files, else from its folder's name."""
    return _pair_from_name(name) or _pair_from_run(folder) or _pair_from_name(folder.resolve().name) or UNKNOWN


def _base_language(code: str) -> str:
    """pt_BR -> pt."""
    return code.partition("_")[0]


def _pair_from_name(name: str) -> LanguagePair | None:
    """opus-mt-en-de -> en, de; at the end of a longer name both must be known languages."""
    match = re.fullmatch(rf"(?:(.*)[-_.])?({CODE})-({CODE})", name)
    if match is None:
        return None
    start, source, target = match.groups()
    known = _base_language(source) in NAMES and _base_language(target) in NAMES
    return LanguagePair(source, target) if known or start is None else None


def _pair_from_run(folder: Path) -> LanguagePair | None:
    """The extensions of the training files in run.json, such as train.en.gz and train.de."""
    try:
        data = (read_json(folder, "run.json") or {})["config"]["data"]
        if data.get("source_language") and data.get("target_language"):
            return LanguagePair(*(data[f"{side}_language"].replace("-", "_") for side in ("source", "target")))
        ends = [Path(str(data[side]).removesuffix(".gz")).suffix[1:] for side in ("source", "target")]
    except (KeyError, TypeError):
        return None
    return LanguagePair(*ends) if all(re.fullmatch(CODE, end) and end in NAMES for end in ends) else None
