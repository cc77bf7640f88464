"""Unicode and white-space normalization of sentences.

A trained tokenizer stores these rules in its JSON; corpus builders use them to find duplicates. Knows no ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tokenizers import Regex, normalizers

from heedful.errors import quote

WORD_START = "▁"  # U+2581 stands for a space inside pieces; in text it is replaced

# All line ends of Unicode, and ASCII white space. U+00A0, U+202F and U+3000 carry meaning and are kept.
BLANKS = r"[\t\n\x{0B}\f\r \x{85}\x{2028}\x{2029}]+"


def normalizer(lowercase: bool) -> normalizers.Normalizer:
    """NFC; white space and line ends become one space and are stripped at both ends; U+2581 becomes an underscore."""
    # Lower case comes first and NFC composes its result, so that normalization is idempotent.
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lowercase else []
    steps += [
        normalizers.NFC(),
        normalizers.Replace(Regex(BLANKS), " "),
        normalizers.Replace(Regex(r"\A | \z"), ""),  # Strip() would also remove U+00A0
        normalizers.Replace(WORD_START, "_"),
    ]
    return normalizers.Sequence(steps)


def normalize_function(lowercase: bool = False) -> Callable[[str], str]:
    """The normalization of a vocabulary trained by `train_vocabulary`, as a function."""
    steps = normalizer(lowercase)

    def normalize(text: str) -> str:
        return steps.normalize_str(replace_surrogates(text))

    return normalize


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates (from bytes that are not UTF-8) by U+FFFD."""
    if not isinstance(text, str):
        raise _not_text(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def check_texts(texts: object) -> None:
    """Refuse an argument that is not a list of texts."""
    if isinstance(texts, str):
        raise TypeError(f"{quote(texts)} is one text; give a list of texts.")
    if isinstance(texts, bytes) or not isinstance(texts, Collection):
        raise _not_text(texts)
    for text in texts:
        if not isinstance(text, str):
            raise _not_text(text)


def _not_text(value: object) -> TypeError:
    return TypeError(f"{quote(value)} is of type {type(value).__name__}; give a text as a str, or several in a list.")
