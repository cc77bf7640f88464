"""What counts as the same text, decided before a vocabulary exists.

A tokeniser carries these rules in its JSON; the readers of a corpus use them to find duplicates. Knows no ids.
"""

from __future__ import annotations

from collections.abc import Callable

from tokenizers import Regex, normalizers

WORD_START = "▁"  # U+2581 marks a space inside pieces, so that text cannot hold one of its own

# Everything that ends a line somewhere, and the ASCII blanks. U+00A0, U+202F and U+3000 carry meaning and stay.
BLANKS = r"[\t\n\x{0B}\f\r \x{85}\x{2028}\x{2029}]+"


def normalizer(lowercase: bool) -> normalizers.Normalizer:
    """NFC; runs of blanks and line ends are one space, none at the ends; U+2581 becomes an underscore."""
    # Lower case comes first: what it leaves decomposed is composed by NFC, so that normalising twice changes nothing.
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lowercase else []
    steps += [
        normalizers.NFC(),
        normalizers.Replace(Regex(BLANKS), " "),
        normalizers.Replace(Regex(r"\A | \z"), ""),  # Strip() would take U+00A0 as well
        normalizers.Replace(WORD_START, "_"),
    ]
    return normalizers.Sequence(steps)


def normalize_function(lowercase: bool = False) -> Callable[[str], str]:
    """The function from text to the text that a vocabulary learned here sees."""
    steps = normalizer(lowercase)

    def normalize(text: str) -> str:
        return steps.normalize_str(valid(text))

    return normalize


def valid(text: str) -> str:
    """The text itself, or, if it holds lone surrogates (bytes that were never UTF-8), U+FFFD in their place."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
