"""One large sample of the grammar, shared by all tests: structures with their pairs, duplicates included."""

import random

import pytest

from heedful.demo import Pair, render
from heedful.demo.sentence_grammar import Writer, write_sentence
from heedful.demo.structure import Sentence


@pytest.fixture(scope="session")
def sample() -> list[tuple[Sentence, Pair]]:
    writer = Writer(random.Random(42))
    sentences = [write_sentence(writer) for _ in range(20000)]
    return [(sentence, render(sentence)) for sentence in sentences]
