"""GPTs and BERTs in the compiled engine: the numbers of torch, alone and in any batch to the bit."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.config import ModelConfig, SearchSettings
from heedful.errors import SettingError
from heedful.inference import native_choice
from heedful.inference.context_window import ContextWindow
from heedful.inference.encoder import Encoder
from heedful.inference.engine_window import EngineWindow
from heedful.inference.generator import Generator
from heedful.model.transformer import DecoderModel, EncoderModel, build_model
from heedful.native import Engine, library
from heedful.native.engine_encoder import EngineEncoder
from heedful.native.torch_bridge import ModuleWeights
from heedful.storage.folder import ModelFolder, save_folder
from heedful.text import train_vocabulary

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiled engine")
V = 61
SIZES = {"vocab_size": V, "d_model": 24, "d_ff": 40, "n_heads": 3, "encoder_layers": 2, "decoder_layers": 2}
SIZES |= {"max_length": 16, "dropout": 0.0, "scale_embedding": False}
DECODERS = [
    {"pre_norm": True, "positions": "rotary", "activation": "gelu"},
    {"pre_norm": True, "positions": "learned", "activation": "gelu_tanh", "tie": "none", "bias": False},
    {"positions": "alibi", "activation": "swiglu", "output_bias": True, "embedding_norm": True},
    {"positions": "sinusoidal", "activation": "relu", "scale_embedding": True},
    {"pre_norm": True, "positions": "sinusoidal", "activation": "silu", "n_heads": 1},
]
ENCODERS = [
    {"positions": "learned", "activation": "gelu", "embedding_norm": True, "token_types": 2, "head": "transform"},
    {"pre_norm": True, "positions": "rotary", "activation": "silu", "pooler": True, "labels": ("a", "b", "c")},
    {"positions": "alibi", "activation": "swiglu", "tie": "none", "output_bias": True, "labels": ("a", "b")},
    {"positions": "sinusoidal", "activation": "relu", "head": "linear", "labels": ("a", "b")},
    {"pre_norm": True, "positions": "sinusoidal", "activation": "gelu_tanh", "bias": False, "head": "transform"},
]
PROMPTS = [[5, 6, 7], [9], [11, 12, 13, 14, 15, 16, 17], [5, 6, 7], list(range(20, 41))]


def module(family: str, settings: dict[str, object]) -> DecoderModel | EncoderModel:
    torch.manual_seed(1)
    model = build_model(ModelConfig(**SIZES | {"family": family} | settings))  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms that matter, and distributions with a shape
            parameter.add_(torch.randn_like(parameter) * 0.3)
    assert not hasattr(model, "source_embedding")
    return model.eval()  # type: ignore[return-value]


def generated(window: EngineWindow | ContextWindow, steps: int) -> list[np.ndarray]:
    """Greedy log-probabilities of every step; a row leaves on the way."""
    results = []
    for step in range(steps):
        log_probs = window.next()
        results.append(log_probs)
        window.append(log_probs.argmax(1).tolist())
        if step == 3:
            window.select([4, 0, 2, 0])  # one row twice, one not at all
    return results


@torch.inference_mode()
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("settings", DECODERS, ids=str)
def test_a_gpt_has_the_log_probabilities_of_torch(settings: dict[str, object], threads: int) -> None:
    """With prompts of several lengths, two of them equal, and windows that slide."""
    model = module("decoder", settings)
    assert isinstance(model, DecoderModel)
    window, reference = EngineWindow(Engine(ModuleWeights(model), int8=False), threads), ContextWindow(model)
    for prompt in PROMPTS:
        window.add(prompt)
        reference.add(prompt)
    for actual, expected in zip(generated(window, 20), generated(reference, 20), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("int8", [False, True])
def test_a_prompt_has_the_same_numbers_alone_and_in_any_batch(int8: bool) -> None:
    model = module("decoder", DECODERS[0])
    engine = Engine(ModuleWeights(model), int8=int8)
    together = EngineWindow(engine, 3)
    for prompt in PROMPTS:
        together.add(prompt)
    first = together.next()
    for prompt, row in zip(PROMPTS, first, strict=True):
        alone = EngineWindow(engine, 1)
        alone.add(prompt)
        assert np.array_equal(alone.next()[0], row)
    grown = EngineWindow(engine, 1)  # token by token, as if each had been generated
    grown.add(PROMPTS[2][:1])
    for token in PROMPTS[2][1:]:
        grown.next()
        grown.append([token])
    assert np.array_equal(grown.next()[0], first[2])


def test_sentences_that_no_row_uses_are_dropped() -> None:
    window = EngineWindow(Engine(ModuleWeights(module("decoder", DECODERS[0])), int8=False), 1)
    for prompt in PROMPTS:
        window.add(prompt)
    generated(window, 20)
    assert window.sentences == {row.sentence for row in window.state} - {-1}


def texts_of(count: int) -> tuple[list[list[int]], list[list[int]]]:
    generator = np.random.default_rng(3)
    texts = [generator.integers(4, V, generator.integers(1, 17)).tolist() for _ in range(count)]
    return texts, [[int(i > 3) for i in range(len(text))] for text in texts]


@torch.inference_mode()
@pytest.mark.parametrize(("threads", "width"), [(1, 24), (3, 96)])  # heads narrower than a register, and whole ones
@pytest.mark.parametrize("settings", ENCODERS, ids=str)
def test_a_bert_has_the_hidden_states_and_heads_of_torch(settings: dict[str, object], threads: int, width: int) -> None:
    model = module("encoder", settings | {"d_model": width})
    assert isinstance(model, EncoderModel)
    encoder = EngineEncoder(Engine(ModuleWeights(model), int8=False), threads)
    texts, types = texts_of(45)
    hidden = encoder.hidden_states(texts, types)
    for text, kinds, states in zip(texts, types, hidden, strict=True):
        expected = model(torch.tensor([text]), types=torch.tensor([kinds]))[0]
        np.testing.assert_allclose(states, expected.numpy(), rtol=1e-4, atol=1e-4)
    rows = torch.from_numpy(np.stack([states[0] for states in hidden]))
    if model.config.head != "none":
        np.testing.assert_allclose(
            encoder.token_logits(rows.numpy()), model.project(rows).numpy(), rtol=1e-3, atol=1e-4
        )
    if model.pooler is not None:
        expected = model.pool(rows.unsqueeze(1))
        np.testing.assert_allclose(encoder.pool(rows.numpy()), expected.numpy(), rtol=1e-4, atol=1e-5)
    if model.classifier is not None:
        np.testing.assert_allclose(
            encoder.class_logits(rows.numpy()), model.classifier(rows).numpy(), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("int8", [False, True])
def test_a_text_has_the_same_states_alone_and_in_any_batch(int8: bool) -> None:
    engine = Engine(ModuleWeights(module("encoder", ENCODERS[0] | {"d_model": 96})), int8=int8)
    texts, types = texts_of(130)  # more batches than threads
    together = EngineEncoder(engine, 3).hidden_states(texts, types)
    few = EngineEncoder(engine, 3).hidden_states(texts[:20], types[:20])
    for text, kinds, *states in list(zip(texts, types, together, few, strict=False))[:9]:
        alone = EngineEncoder(engine, 1).hidden_states([text], [kinds])[0]
        assert all(np.array_equal(alone, state) for state in states)
    assert np.array_equal(EngineEncoder(engine, 1).hidden_states(texts[-1:], types[-1:])[0], together[-1])


def test_int8_is_near() -> None:
    model = module("encoder", ENCODERS[0])
    texts, types = texts_of(20)
    exact, rounded = (
        np.concatenate(EngineEncoder(Engine(ModuleWeights(model), int8=int8), 1).hidden_states(texts, types))
        for int8 in (False, True)
    )
    cosine = (exact * rounded).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(rounded, axis=1)
    assert cosine.min() > 0.98 and cosine.mean() > 0.995


TEXT = ["the cat sat on the mat with a hat"] * 4


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A GPT and a BERT with labels on disk."""
    paths = {}
    for family, settings in (("decoder", DECODERS[0]), ("encoder", ENCODERS[0] | {"labels": ("a", "b")})):
        tokenizer = train_vocabulary(TEXT, extra=["<mask>"])
        ids = {"pad_id": tokenizer.pad_id, "bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id}
        model = module(family, settings | ids | {"vocab_size": tokenizer.vocab_size})
        paths[family] = tmp_path_factory.mktemp(family)
        save_folder(ModelFolder(model, tokenizer, tokenizer, SearchSettings(), paths[family]))
    return paths


def test_texts_of_a_gpt_on_disk_are_those_of_torch(folders: dict[str, Path]) -> None:
    generator, other = Generator.load(folders["decoder"]), Generator.load(folders["decoder"])
    other.folder_models.hand_out()
    assert isinstance(generator.open_window(), EngineWindow) and not isinstance(other.open_window(), EngineWindow)
    for options in ({"temperature": 0}, {"seed": 3}, {"top_p": 0.8}, {"top_k": 5, "repetition_penalty": 1.3}):
        actual, expected = (model.samples("the cat", n=3, max_tokens=25, **options) for model in (generator, other))
        assert actual == expected


def test_results_of_a_bert_on_disk_are_those_of_torch(folders: dict[str, Path]) -> None:
    encoder, other = Encoder.load(folders["encoder"]), Encoder.load(folders["encoder"])
    other.folder_models.hand_out()
    assert encoder.engine is not None and other.engine is None
    np.testing.assert_allclose(encoder.embed(TEXT), other.embed(TEXT), atol=1e-5)
    actual, by_torch = (model.fill_mask("the [MASK] sat")[0] for model in (encoder, other))
    assert [c.token for c in actual] == [c.token for c in by_torch]
    assert [c.probability for c in actual] == pytest.approx([c.probability for c in by_torch], rel=1e-3)
    ours_labels, theirs_labels = (model.classify(["the cat", "a hat"], ["sat", ""]) for model in (encoder, other))
    for label, expected in zip(ours_labels, theirs_labels, strict=True):
        assert label.probabilities == pytest.approx(expected.probabilities, abs=1e-4)


def test_commands_do_not_import_torch(folders: dict[str, Path], tmp_path: Path) -> None:
    """All of them in one process of its own."""
    gpt, bert = str(folders["decoder"]), str(folders["encoder"])
    commands = [
        ["generate", gpt, "the cat", "--max-tokens", "5", "--top-p", "0.9", "--precision", "int8"],
        ["fill-mask", bert, "the [MASK] sat"],
        ["embed", bert, "-i", "lines", "-o", "vectors.npy"],
        ["classify", bert, "-i", "lines", "--precision", "int8"],
    ]
    (tmp_path / "lines").write_text("a hat\nthe cat\n", encoding="utf-8")
    code = (
        "import sys\nfrom heedful.cli import main\n"
        f"for command in {commands!r}:\n"
        "    sys.argv = ['heedful', *command]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, command\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False"
    assert np.load(tmp_path / "vectors.npy").shape == (2, SIZES["d_model"])


def test_int8_needs_the_engine(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_choice, "library", lambda: None)
    with pytest.raises(SettingError, match="precision is int8, but the native engine, which computes it, is not avail"):
        Generator.load(folders["decoder"], "int8")
