"""A GPT at work: streams, caches, windows, seeds and stops, on a model that knows nothing."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import torch

from heedful.config import ModelConfig, SearchSettings
from heedful.errors import FolderError, SettingError
from heedful.inference.context_window import ContextWindow
from heedful.inference.generator import GenerationBatch, Generator, TextStreamer
from heedful.inference.scheduler import Scheduler
from heedful.model.transformer import build_model
from heedful.search import SearchOptions
from heedful.search.beam import beam_search
from heedful.search.constraints import ban
from heedful.search.sample import sample
from heedful.storage.folder import ModelFolder
from heedful.text import train_plain_vocabulary
from tests.inference.gpt_next_token import GPTNextToken

TEXT = ["The quick brown fox jumps over the lazy dog.\nÄrger über 你好 🙂!\n"] * 2
NO_UNKNOWN = ban([1])


def generator_of(kind: str = "bytes", **changes: object) -> Generator:
    tokenizer = train_plain_vocabulary(TEXT, kind)
    settings: dict[str, object] = {
        "family": "decoder", "vocab_size": tokenizer.vocab_size, "d_model": 32, "d_ff": 32, "n_heads": 2,
        "decoder_layers": 2, "pre_norm": True, "tie": "none", "positions": "rotary", "max_length": 48, "dropout": 0.0,
        "pad_id": tokenizer.pad_id, "bos_id": tokenizer.eos_id, "eos_id": tokenizer.eos_id,
    }  # fmt: skip
    torch.manual_seed(1)
    model = build_model(ModelConfig(**settings | changes))  # type: ignore[arg-type]
    with torch.no_grad():
        model.output_weight.mul_(4)  # far from uniform
    return Generator(ModelFolder(model, tokenizer, tokenizer, SearchSettings(), Path("x")))


@pytest.fixture(scope="module", params=["native", "torch"])
def generator(request: pytest.FixtureRequest) -> Generator:
    made = generator_of()
    if request.param == "torch":
        made.folder_models.hand_out()
    return made


def test_the_same_seed_gives_the_same_text(generator: Generator) -> None:
    texts = [generator.generate("The", seed=seed, max_tokens=30) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_prompt_is_a_text(generator: Generator) -> None:
    with pytest.raises(TypeError, match="3 is of type int; give a text as a str"):
        generator.generate(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["bytes", "bpe", "characters"])
@pytest.mark.parametrize("seed", range(3))
def test_streamed_pieces_concatenate_to_the_decoded_ids(kind: str, seed: int) -> None:
    generator = generator_of(kind)
    prompt = generator.tokenizer.encode("The")
    options = SearchOptions(max_length=70, seed=seed, temperature=1.5, constraints=(NO_UNKNOWN,))
    drawn = sample(GPTNextToken(generator.module), torch.tensor([prompt]), torch.tensor([len(prompt)]), options)[0][0]
    pieces = list(generator.stream("The", max_tokens=70, seed=seed, temperature=1.5))
    if kind != "characters":  # where the library spells a whole run of bytes as broken if its end is
        assert "".join(pieces) == generator.tokenizer.decode_text(drawn.ids)
    assert all(pieces)
    assert len(pieces) > 2


@pytest.mark.parametrize("changes", [{}, {"temperature": 0.7, "top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}])
def test_tokens_are_sampled_as_search_samples_them(generator: Generator, changes: dict[str, float]) -> None:
    prompt = generator.tokenizer.encode("The quick")
    options = SearchOptions(n_best=4, max_length=25, seed=7, constraints=(NO_UNKNOWN,), **changes)
    results = sample(GPTNextToken(generator.module), torch.tensor([prompt]), torch.tensor([len(prompt)]), options)[0]
    expected = [generator.tokenizer.decode_text(item.ids) for item in results]
    assert generator.samples("The quick", 4, max_tokens=25, seed=7, **changes) == expected
    assert [generator.generate("The quick", number=i, max_tokens=25, seed=7, **changes) for i in range(4)] == expected


def test_prompts_of_different_lengths_are_searched_together(generator: Generator) -> None:
    prompts = [generator.tokenizer.encode(text) for text in ("The quick", "dog", "fox!")]
    lengths = torch.tensor([len(ids) for ids in prompts])
    source = torch.tensor([[*ids, *[0] * (9 - len(ids))] for ids in prompts])
    for find, options in (
        (sample, SearchOptions(n_best=2, max_length=12)),
        (beam_search, SearchOptions(beam=3, max_length=12)),
    ):
        together = find(GPTNextToken(generator.module), source, lengths, options)
        for ids, results in zip(prompts, together, strict=True):
            (alone,) = find(GPTNextToken(generator.module), torch.tensor([ids]), torch.tensor([len(ids)]), options)
            assert [item.ids for item in results] == [value.ids for value in alone]


def test_temperature_0_is_greedy_and_a_beam_of_one(generator: Generator) -> None:
    prompt = generator.tokenizer.encode("dog")
    options = SearchOptions(beam=1, length_penalty=0, max_length=20, loop_guard=False)
    best = beam_search(GPTNextToken(generator.module), torch.tensor([prompt]), torch.tensor([3]), options)[0][0]
    assert generator.generate("dog", temperature=0, max_tokens=20) == generator.tokenizer.decode_text(best.ids)


@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", "alibi", "relative"])
def test_cached_equals_uncached_also_when_the_window_slides(positions: str) -> None:
    model = generator_of(positions=positions, max_length=16).model
    ids = torch.randint(4, 260, (2, 5), generator=torch.Generator().manual_seed(0))
    window, seen = ContextWindow(model), ids
    for row in ids.tolist():
        window.add(row)
    with torch.inference_mode():
        for _ in range(40):
            log_probs = torch.from_numpy(window.next())
            start = -(-max(0, seen.size(1) - 16) // 4) * 4
            whole = model.project(model(seen[:, start:])[:, -1]).log_softmax(-1)
            torch.testing.assert_close(log_probs, whole, rtol=1e-4, atol=1e-4)
            new = log_probs.argmax(1)
            window.append(new.tolist())
            seen = torch.cat((seen, new.unsqueeze(1)), 1)
    assert max(map(len, window.rows)) <= 16


def test_long_prompts_and_long_texts_slide_the_window(generator: Generator) -> None:
    assert generator.generate("fox " * 60, max_tokens=5, temperature=0)
    written = generator.samples("The", 1, max_tokens=150, seed=2)[0]
    assert generator.generate("The", max_tokens=150, seed=2) == written


def test_the_cost_of_a_token_is_one_position_but_when_the_window_slides(generator: Generator) -> None:
    seen: list[int] = []
    hook = generator.module.embedding.register_forward_hook(
        lambda module, inputs, result: seen.append(inputs[0].size(1))
    )
    window = ContextWindow(generator.module)
    window.add([5, 6, 7])
    with torch.inference_mode():
        for _ in range(100):
            window.append(window.next().argmax(1).tolist())
    hook.remove()
    counts = Counter(seen)
    assert counts[1] >= 90
    assert max(seen) <= 48


KINDS: dict[str, dict[str, object]] = {
    "rotary": {},
    "learned": {"positions": "learned"},
    "alibi": {"positions": "alibi", "pre_norm": False},
    "sparse": {"attention": "sparse", "attention_window": 2, "attention_stride": 5},
    "linear": {"attention": "linear"},
    "lstm": {"architecture": "rnn", "cell": "lstm"},
    "conv": {"architecture": "conv", "positions": "sinusoidal"},
    "universal": {"universal": True},
}
SETTINGS: list[dict[str, object]] = [
    {}, {"temperature": 0}, {"temperature": 0.7, "top_k": 9}, {"top_p": 0.8, "repetition_penalty": 1.5},
    {"min_p": 0.1, "stop": ["e", "ü"]}, {"best": 2, "temperature": 1.4},
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_a_shared_batch_equal_samples_alone(kind: str) -> None:
    """Requests join and leave at any step, with different settings, and windows slide now and then."""
    generator, chance = generator_of(max_length=20, **KINDS[kind]), random.Random(kind)
    scheduler, requests, texts = Scheduler(GenerationBatch(generator)), {}, {}
    for _ in range(60):
        if len(requests) < 9 and chance.random() < 0.4:
            prompt = "The quick brown fox"[: chance.randrange(20)]
            options = chance.choice(SETTINGS) | {"max_tokens": chance.randrange(1, 25), "seed": chance.randrange(9)}
            n = chance.randrange(1, 4)
            (queued,) = scheduler.add([generator.text(prompt, range(n), **options)])  # type: ignore[arg-type]
            requests[queued], texts[queued] = (prompt, n, options), [""] * n
        elif scheduler.running and chance.random() < 0.05:
            cancelled = chance.choice(sorted(scheduler.running, key=lambda queued: queued.number))
            scheduler.cancel([cancelled])
            del requests[cancelled]
        for result in scheduler.step():
            for delta in result.get():
                texts[result.queued][delta.number] += delta.text
    assert scheduler.idle() and len(requests) > 5
    for queued, (prompt, n, options) in requests.items():
        assert texts[queued] == generator.samples(prompt, n, **options)


def test_equal_prompts_are_computed_once_beside_running_samples(generator: Generator) -> None:
    sizes: list[tuple[int, ...]] = []
    hook = generator.module.embedding.register_forward_hook(
        lambda module, inputs, result: sizes.append(inputs[0].shape)
    )
    scheduler = Scheduler(GenerationBatch(generator))
    scheduler.add([generator.text("The quick", range(3), max_tokens=9)])
    scheduler.step()
    scheduler.add([generator.text("The", range(1), max_tokens=9), generator.text("fox", range(2), max_tokens=9)])
    scheduler.step()
    scheduler.step()
    hook.remove()
    assert sizes == [(1, 9), (3, 1), (2, 3), (6, 1)]


def test_stop_strings_end_the_text_and_are_not_part_of_it() -> None:
    tokenizer = train_plain_vocabulary(TEXT, "bytes")
    for stop, expected in [(("brown",), "The quick "), (("fox", "row"), "The quick b"), (("zzz", "dog!"), None)]:
        writer, text = TextStreamer(tokenizer, stop), ""
        for token in tokenizer.encode(TEXT[0]):
            if not writer.stopped:
                piece = writer.add(token)
                assert not any(item in text + piece for item in stop)
                text += piece
        text += "" if writer.stopped else writer.end()
        assert text == (TEXT[0] if expected is None else expected)


def test_text_that_begins_like_a_stop_string_is_not_lost() -> None:
    tokenizer = train_plain_vocabulary(TEXT, "bytes")
    writer = TextStreamer(tokenizer, ("dogs",))
    pieces = [writer.add(token) for token in tokenizer.encode("a dog")]
    assert "".join(pieces) == "a "
    assert writer.end() == "dog"


def test_generated_text_stops(generator: Generator) -> None:
    whole = generator.generate("The", max_tokens=60, seed=3)
    letter = next(item for item in whole[10:] if item.isalnum())
    assert generator.generate("The", max_tokens=60, seed=3, stop=letter) == whole[: whole.index(letter)]


def test_characters_are_never_cut() -> None:
    tokenizer = train_plain_vocabulary(TEXT, "bytes")
    writer = TextStreamer(tokenizer)
    pieces = [writer.add(token) for token in tokenizer.encode("ü你🙂!")]
    assert pieces == ["", "ü", "", "", "你", "", "", "", "🙂", "!"]
    unfinished = TextStreamer(tokenizer)
    assert unfinished.add(tokenizer.encode("🙂")[0]) == ""
    assert unfinished.end() == "\ufffd"


def test_repetition_becomes_less_probable(generator: Generator) -> None:
    def repeated(penalty: float) -> int:
        texts = generator.samples("The", 4, max_tokens=40, seed=1, repetition_penalty=penalty, temperature=0.5)
        return sum(len(text) - len(set(text)) for text in texts)

    assert repeated(5.0) < repeated(1.0)


def test_an_empty_prompt_begins_a_document(generator: Generator) -> None:
    begin = torch.tensor([[generator.module.config.bos_id]])
    results = sample(
        GPTNextToken(generator.module),
        begin,
        torch.tensor([1]),
        SearchOptions(max_length=10, seed=5, constraints=(NO_UNKNOWN,)),
    )[0][0]
    assert generator.generate(max_tokens=10, seed=5) == generator.tokenizer.decode_text(results.ids)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"temperature": -1}, "search.temperature is -1"),
        ({"top_p": 2}, "search.top_p is 2"),
        ({"stop": [""]}, "stop string is empty"),
        ({"repetition_penalty": 0}, "repetition penalty is 0"),
        ({"warmth": 3}, "unknown key search.warmth"),
    ],
)
def test_bad_options_are_one_sentence(generator: Generator, options: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        generator.generate("The", **options)


def test_other_families_do_not_generate(generator: Generator) -> None:
    config = ModelConfig(family="encoder", vocab_size=9, d_model=8, d_ff=8, n_heads=2, encoder_layers=1, max_length=8)
    folder = ModelFolder(build_model(config), generator.tokenizer, generator.tokenizer, SearchSettings(), Path("x"))
    with pytest.raises(FolderError, match="holds a BERT, which does not continue text"):
        Generator(folder)


def test_steps_tell_the_end_and_what_the_model_thought(generator: Generator) -> None:
    numbers, requested = range(2, 5), {"max_tokens": 12, "seed": 3, "temperature": 1.5}
    steps = list(generator.steps("The", numbers, best=3, **requested))
    for number in numbers:
        actual = [piece for pieces in steps for piece in pieces if piece.number == number]
        assert "".join(piece.text for piece in actual) == generator.generate("The", number=number, **requested)
        assert [piece.end for piece in actual[:-1]] == [""] * (len(actual) - 1)
        assert actual[-1].end == ("length" if len(actual) == 12 else "stop")
        ids = [*generator.tokenizer.encode("The"), *(piece.token for piece in actual)]
        with torch.no_grad():
            log_probs = generator.module.project(generator.module(torch.tensor([ids])))[0].log_softmax(-1)
        for place, piece in enumerate(actual, len(ids) - len(actual) - 1):
            assert piece.log_prob == pytest.approx(float(log_probs[place, piece.token]), abs=1e-4)
            assert len(piece.best) == 3
            assert piece.best[0][1] >= max(piece.log_prob, piece.best[1][1])
    text = generator.generate("The", **requested)
    (piece,) = list(generator.steps("The", range(1), stop=text[3:5], **requested))[-1]
    assert piece.end == "stop"


def test_a_long_loop_ends_unless_the_prompt_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = generator_of()
    (token,) = generator.tokenizer.encode("o")
    compute = generator.next

    def stuck(window: ContextWindow) -> torch.Tensor:
        log_probs = compute(window)
        log_probs[:, token] = 0.0
        return log_probs

    monkeypatch.setattr(generator, "next", stuck)

    def run(prompt: str, **options: object) -> int:
        """How often the token is repeated before another one."""
        steps = generator.steps(prompt, range(1), temperature=0, max_tokens=60, **options)
        tokens = [delta.token for deltas in steps for delta in deltas]
        return next((place for place, other in enumerate(tokens) if other != token), len(tokens))

    assert run("dog", loop_guard=False) == 60
    assert run("dog") == 32
    assert run("d" + "o" * 40 + "g") == 40
