"""German inflection: from a lexicon entry and its features to one written form. Knows no sentence."""

from heedful.demo.lexicon import Adjective, Conjugation, Determiner, Noun, Verb, german_stem
from heedful.demo.structure import Case, Person

CASES: tuple[Case, ...] = ("nom", "acc", "dat", "gen")


def _table(*rows: str) -> dict[tuple[str, str], str]:
    """Rows are cases, columns are m f n p (plural); `-` is the empty ending."""
    return {
        (case, gender): ending.strip("-")
        for case, row in zip(CASES, rows, strict=True)
        for gender, ending in zip("mfnp", row.split(), strict=True)
    }


DEFINITE = _table("der die das die", "den die das die", "dem der dem den", "des der des der")
STRONG_DETERMINER = _table("er e es e", "en e es e", "em er em en", "es er es er")
INDEFINITE = _table("- e - e", "en e - e", "em er em en", "es er es er")

ADJECTIVE = {
    "der": _table("e e e en", "en e e en", "en en en en", "en en en en"),  # weak: der gute Mann
    "ein": _table("er e es en", "en e es en", "en en en en", "en en en en"),  # mixed: ein guter Mann
    "strong": _table("er e es e", "en e es e", "em er em en", "en er en er"),  # strong: guter Wein
}
ADJECTIVE["bare"] = ADJECTIVE["strong"]

RELATIVE = _table("der die das die", "den die das die", "dem der dem denen", "dessen deren dessen deren")


def determiner(word: Determiner, case: Case, gender: str) -> str:
    """`gender` is m, f, n or p for any plural."""
    if word.german == "d":
        return DEFINITE[case, gender]
    match word.pattern:
        case "der" | "strong":
            return word.german + STRONG_DETERMINER[case, gender]
        case "ein":
            return word.german + INDEFINITE[case, gender]
        case _:
            return word.german


def adjective(word: Adjective, pattern: str, case: Case, gender: str) -> str:
    stem = word.german.removesuffix("e")
    if stem in ("teuer", "dunkel"):
        stem = stem[:-2] + stem[-1]
    return stem + ADJECTIVE[pattern][case, gender]


def noun(word: Noun, case: Case, plural: bool) -> str:
    if plural:
        form = word.german_plural
        return form + "n" if case == "dat" and form[-1] not in "ns" else form
    if word.weak:
        return word.german if case == "nom" else word.german_plural
    if case == "gen" and word.gender != "f":
        return _genitive(word.german)
    return word.german


def _genitive(singular: str) -> str:
    """Hundes, but Lehrers: the full ending follows a sibilant or a single syllable that ends in a consonant."""
    if singular.endswith("s"):
        return singular + ("ses" if singular == "Bus" else "es")
    vowels = [letter in "aeiouyäöü" for letter in singular.lower()]
    syllables = sum(here and not before for before, here in zip([False, *vowels], vowels, strict=False))
    long = singular.endswith(("ß", "z", "x", "sch")) or (syllables == 1 and not vowels[-1])
    return singular + ("es" if long else "s")


IRREGULAR = {
    "sein": Conjugation("bin", "bist", "ist", "sind"),
    "haben": Conjugation("habe", "hast", "hat", "haben"),
    "werden": Conjugation("werde", "wirst", "wird", "werden"),
    "wissen": Conjugation("weiß", "weißt", "weiß", "wissen"),
    "mögen": Conjugation("mag", "magst", "mag", "mögen"),
}
PRETERITE = {
    "sein": Conjugation("war", "warst", "war", "waren"),
    "haben": Conjugation("hatte", "hattest", "hatte", "hatten"),
    "geben": Conjugation("gab", "gabst", "gab", "gaben"),  # es gab
}


def conjugate(forms: Conjugation, person: Person) -> str:
    return forms.wir if person == "sie" else getattr(forms, person)


def present(verb: Verb) -> Conjugation:
    if verb.infinitive in IRREGULAR:
        return IRREGULAR[verb.infinitive]
    ich = _without_e(verb.infinitive) + "e"
    er_stem = verb.er.removesuffix("t")
    du = er_stem + ("t" if er_stem[-1] in "sßzx" else "st")
    return Conjugation(ich, du, verb.er, verb.infinitive)


def imperative(verb: Verb) -> str:
    """The du form: `hilf` takes the vowel of `hilft`, but `schlaf` does not take that of `schläft`."""
    stem, er_stem = german_stem(verb.infinitive), verb.er.removesuffix("t")
    if er_stem != stem and "ä" not in er_stem and not er_stem.endswith("e"):
        return er_stem
    full = stem[-1] in "dt" or verb.infinitive.endswith(("eln", "ern", "ieren", "danken", "folgen", "armen", "reisen"))
    return _without_e(verb.infinitive) + "e" if full else stem


def _without_e(infinitive: str) -> str:
    """The stem before a vowel: klingeln, ich klingl-e."""
    stem = german_stem(infinitive)
    return stem[:-2] + "l" if infinitive.endswith("eln") else stem


REFLEXIVE = {"ich": "mich", "du": "dich", "er": "sich", "wir": "uns", "sie": "sich"}

CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
}
