"""A model must learn to summarize: documents made of facts and filler, and titles that name the fact."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

import heedful
from heedful.cli.commands import build_app
from heedful.evaluation.rouge import evaluate_summaries
from heedful.inference.summarizer import Summarizer

pytestmark = pytest.mark.slow

PEOPLE, PRIZES, CITIES = (
    ["Ada", "Ben", "Cleo", "Dan", "Eva"],
    ["cup", "medal", "vase", "book"],
    ["Rome", "Oslo", "Bern"],
)
FILLER = [
    "The weather was mild.", "Many people came by train.", "A band played all night.", "Food was cheap.",
    "The old hall was full.", "Children ran about.",
]  # fmt: skip


def documents(count: int, seed: int) -> list[tuple[str, str]]:
    """(document, title): one sentence of each document matters, and it may stand anywhere."""
    numbers, made = random.Random(seed), []
    for _ in range(count):
        who, what, where = numbers.choice(PEOPLE), numbers.choice(PRIZES), numbers.choice(CITIES)
        sentences = [numbers.choice(FILLER) for _ in range(numbers.randint(2, 4))]
        sentences.insert(numbers.randint(0, len(sentences)), f"In {where} {who} was given the {what}.")
        made.append((" ".join(sentences), f"{who} wins the {what} in {where}"))
    return made


@pytest.fixture(scope="module")
def summarizer(tmp_path_factory: pytest.TempPathFactory) -> Summarizer:
    model = {"d_model": 48, "d_ff": 96, "n_heads": 4, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    train = {"max_updates": 220, "checkpoint_every": 220, "learning_rate": 1e-2, "warmup": 20, "batch_tokens": 2048}
    return heedful.train(
        pairs=documents(2000, 1),
        valid_pairs=documents(40, 2),
        task="summarization",
        out=tmp_path_factory.mktemp("summaries") / "out",
        preset="tiny",
        model=model,
        train=train | {"average_checkpoints": 1, "sampled_softmax": 0, "embedding_init": "random"},
        **{"text.vocab_size": 400, "search.length_penalty": 0.6, "data.max_source_length": 60},
    )


def test_the_fact_of_a_document_is_its_summary(summarizer: Summarizer) -> None:
    assert isinstance(summarizer, Summarizer)
    test = documents(100, 3)
    result = evaluate_summaries(summarizer.summarize([text for text, _ in test]), [title for _, title in test])
    assert result.rougeL.low > 90


def test_long_documents_are_truncated_with_a_notice(summarizer: Summarizer) -> None:
    notices: list[str] = []
    summarizer.notice = notices.append
    text, _ = documents(1, 4)[0]
    assert summarizer.summarize(f"{text} {' '.join(FILLER * 40)}")
    (notice,) = notices
    assert notice.startswith("line 1 has") and notice.endswith("the rest is not read.")


def test_lengths_and_n_grams_are_limited(summarizer: Summarizer) -> None:
    texts = [text for text, _ in documents(8, 5)]
    for n_best in summarizer.translations(texts, min_length=12, max_length=14, no_repeat_ngram=2):
        ids = n_best[0].ids
        assert 12 <= len(ids) <= 14
        assert len({*itertools.pairwise(ids)}) == len(ids) - 1


def test_the_folder_knows_its_task(summarizer: Summarizer) -> None:
    path: Path = summarizer.folders[0].path
    loaded = heedful.load(path)
    assert isinstance(loaded, Summarizer)
    assert loaded.search.max_length is not None
    assert "ROUGE-L" in (path / "README.md").read_text(encoding="utf-8")


def test_the_commands_summarize_and_evaluate(summarizer: Summarizer, tmp_path: Path) -> None:
    path, pairs = summarizer.folders[0].path, documents(6, 6)
    for name, side in (("documents", 0), ("titles", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    run = CliRunner()
    made = run.invoke(build_app(), ["summarize", str(path), "-i", str(tmp_path / "documents"), "--max-length", "20"])
    assert made.exit_code == 0, made.output
    expected = heedful.load(path, kind=Summarizer).summarize([text for text, _ in pairs], max_length=20)
    assert made.stdout.splitlines() == expected
    files = ["--source", str(tmp_path / "documents"), "--reference", str(tmp_path / "titles")]
    refused = run.invoke(build_app(), ["evaluate", str(path), *files, "--lowercase"])
    assert str(refused.exception) == "--lowercase has no effect on summaries, which are scored with ROUGE."
    scored = run.invoke(build_app(), ["evaluate", str(path), *files])
    assert scored.exit_code == 0, scored.output
    assert [line.split()[0] for line in scored.stdout.splitlines()[:3]] == ["ROUGE-1", "ROUGE-2", "ROUGE-L"]
    assert "Porter stemmer" in scored.stdout and "95% confidence intervals" in scored.stdout
