"""Properties of the corpus as a whole: what a model is trained on."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from heedful import demo
from heedful.demo import Pair, lexicon, morphology
from heedful.demo.structure import Sentence

Sample = list[tuple[Sentence, Pair]]
FUNCTION_WORDS = {"a", "an", "the", "to", ",", "der", "die", "das", "den", "dem"}


def lexemes() -> dict[str, set[str]]:
    """Every word of the lexicon with its English forms."""
    forms = {f"{noun.english} (noun)": {noun.english, noun.english_plural} for noun in lexicon.NOUNS}
    forms |= {f"{word.english} (adjective)": {word.english} for word in lexicon.ADJECTIVES}
    forms |= {f"{name.english} (name)": {name.english, name.english + "'s"} for name in lexicon.NAMES}
    for verb in [*lexicon.VERBS, *lexicon.CLAUSE_VERBS.values(), lexicon.RAIN, lexicon.SNOW]:
        english = {verb.base, verb.base + "s", verb.past, verb.participle, lexicon.english_ing(verb.base)}
        forms[f"{verb.base} {verb.prefix}{verb.infinitive}"] = english
    units = [unit for entry in lexicon.PHRASES for unit in entry.english]
    forms |= {f"{' '.join(unit)} (phrase)": set(unit) for unit in units}
    possessives = [(word.english, word.german) for word in lexicon.POSSESSIVES]
    numbers = [(word.english_plural, word.german) for word in [*lexicon.NUMBERS, *lexicon.TENS]]
    closed = [*possessives, *numbers, *lexicon.CONJUNCTIONS.items(), *lexicon.HOURS]
    forms |= {f"{english} {german}": set(english.split()) for english, german in closed}
    return forms


def test_lexicon_is_large_enough() -> None:
    assert len(lexemes()) >= 300


def test_every_lexeme_occurs_often(sample: Sample) -> None:
    counts = Counter(word for _, pair in sample for word in demo.words(pair.source))
    counts += Counter({word.lower(): count for word, count in counts.items() if word != word.lower()})
    rare = {name: n for name, forms in lexemes().items() if (n := sum(counts[form] for form in forms)) < 20}
    assert not rare


def test_one_seed_one_text() -> None:
    first = demo.generate(200, seed=7)
    assert first == demo.generate(200, seed=7) == demo.generate(300, seed=7)[:200]
    assert first != demo.generate(200, seed=8)
    assert first[0].source == demo.generate(1, seed=7)[0].source


def test_text_does_not_depend_on_hashing() -> None:
    program = "from heedful import demo; print(hash('a') % 97, demo.generate(100)[-1].target)"
    outputs = []
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}
        run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        outputs.append(run.stdout.decode("utf-8").split(maxsplit=1))
    assert outputs[0][0] != outputs[1][0]
    assert outputs[0][1] == outputs[1][1]


def test_splits_are_disjoint() -> None:
    parts = demo.splits(seed=3, train=400, valid=60, test=40)
    assert [len(part) for part in (parts.train, parts.valid, parts.test)] == [400, 60, 40]
    assert len({pair.source for part in (parts.train, parts.valid, parts.test) for pair in part}) == 500


def test_write(tmp_path: Path) -> None:
    written = demo.write(tmp_path / "corpus", seed=1, train=50, valid=5, test=5)
    sizes = {"train": 50, "valid": 5, "test": 5}
    for name, size in sizes.items():
        for language in ("en", "de"):
            data = (tmp_path / "corpus" / f"{name}.{language}").read_bytes()
            assert b"\r" not in data
            assert len(data.decode("utf-8").splitlines()) == size
    test = (tmp_path / "corpus" / "test.de").read_text(encoding="utf-8").splitlines()
    assert [pair.target for pair in written.test] == test


def test_an_english_sentence_has_one_translation(sample: Sample) -> None:
    translation: dict[str, str] = {}
    for _, pair in sample:
        assert translation.setdefault(pair.source, pair.target) == pair.target


def test_alignment_covers_the_words(sample: Sample) -> None:
    for _, pair in sample:
        source, target = demo.words(pair.source), demo.words(pair.target)
        rows, columns = {i for i, _ in pair.alignment}, {j for _, j in pair.alignment}
        assert rows <= set(range(len(source))), pair
        assert columns <= set(range(len(target))), pair
        assert {source[i].lower() for i in range(len(source)) if i not in rows} <= FUNCTION_WORDS, pair
        assert {target[j].lower() for j in range(len(target)) if j not in columns} <= FUNCTION_WORDS, pair
        assert (len(source) - 1, len(target) - 1) in pair.alignment


def test_text_is_written_as_usual(sample: Sample) -> None:
    for _, pair in sample:
        for text in (pair.source, pair.target):
            assert re.fullmatch(r"[A-ZÄÖÜ]\S*( \S+)*[.?!]", text), text
            assert not re.search(r"\s[.,?!]|[.,?!][.,?!]|,\S", text), text


def test_words() -> None:
    assert demo.words("Anna's film begins at three o'clock, I think.") == [
        *("Anna's", "film", "begins", "at", "three", "o'clock", ",", "I", "think", "."),
    ]


def test_sentences_have_a_sensible_length(sample: Sample) -> None:
    lengths = [len(demo.words(pair.source)) for _, pair in sample]
    assert sum(4 <= length <= 16 for length in lengths) > 0.95 * len(lengths)


FINITE = {
    form
    for verb in [*lexicon.VERBS, *lexicon.CLAUSE_VERBS.values(), lexicon.BE, lexicon.RAIN, lexicon.SNOW]
    for form in morphology.present(verb)
}
FINITE |= {form for forms in (*morphology.IRREGULAR.values(), *morphology.PRETERITE.values()) for form in forms}
FINITE |= {form for modal in lexicon.MODALS for form in modal.german}
SEPARABLE = {verb.prefix + form for verb in lexicon.VERBS if verb.prefix for form in morphology.present(verb)}


def test_subordinate_clauses_end_in_the_finite_verb(sample: Sample) -> None:
    seen = 0
    for _, pair in sample:
        match = re.search(r", (weil|obwohl|als|während|bevor|ob|dass|wenn) ([^,]+)[.]$", pair.target)
        if match:
            seen += 1
            assert match.group(2).split()[-1] in FINITE | SEPARABLE, pair.target
    assert seen > 500


def test_the_finite_verb_is_second_behind_a_fronted_time(sample: Sample) -> None:
    fronts = {
        " ".join(word for unit in entry.german for word in unit) for entry in lexicon.PHRASES if "time" in entry.kinds
    }
    pattern = re.compile("|".join(sorted((re.escape(front) for front in fronts), key=len, reverse=True)), re.IGNORECASE)
    seen = 0
    for sentence, pair in sample:
        match = pattern.match(pair.target)
        if match and sentence.mood == "statement" and sentence.clause.time_first:
            seen += 1
            assert pair.target[match.end() :].split()[0].strip(".,") in FINITE, pair.target
    assert seen > 500


def test_a_fronted_clause_is_followed_by_the_finite_verb(sample: Sample) -> None:
    fronted = [pair.target for sentence, pair in sample if sentence.linked_first]
    assert len(fronted) > 300
    for target in fronted:
        assert re.split(r", ", target, maxsplit=1)[1].split()[0].strip(".") in FINITE, target


def test_yes_no_questions_and_commands_begin_with_the_verb(sample: Sample) -> None:
    forms = FINITE | {morphology.imperative(verb) for verb in lexicon.VERBS}
    for sentence, pair in sample:
        asks = sentence.mood == "question" and not re.match(r"(W|Auf|An|Mit|Von)", pair.target)
        if sentence.mood == "command" or asks:
            first = pair.target.split()[0].strip("!?")
            assert first.lower() in forms, pair.target


def test_all_grammar_is_in_the_sample(sample: Sample) -> None:
    text = "\n".join(pair.target for _, pair in sample)
    for word in (
        "kein",
        "keinen",
        "nicht",
        "im",
        "ins",
        "zum",
        "am",
        "vom",
        "gern",
        "denen",
        "wem",
        "aufzumachen",
        "sich",
    ):
        assert re.search(rf"\b{word}\b", text, re.IGNORECASE), word
