"""A BERT at work: names and shapes people know, vectors that do not depend on their batch, blanks and labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.config import ModelConfig, SearchSettings
from heedful.errors import FolderError, HeedfulError, SettingError
from heedful.evaluation.metrics import label_scores
from heedful.inference.encoder import Encoder
from heedful.model.transformer import build_model
from heedful.storage.folder import ModelFolder
from heedful.text import train_vocabulary

TEXTS = ["Paris is the capital of France.", "Rome", "the capital of Italy is Rome, not Paris", ""]


def encoder_of(**changes: object) -> Encoder:
    tokenizer = train_vocabulary(TEXTS * 10, extra=["<mask>"])
    settings: dict[str, object] = {
        "family": "encoder", "vocab_size": tokenizer.vocab_size, "d_model": 32, "d_ff": 32, "n_heads": 2,
        "encoder_layers": 2, "pre_norm": True, "positions": "rotary", "max_length": 40, "dropout": 0.1,
        "token_types": 2, "head": "transform", "output_bias": True,
        "pad_id": tokenizer.pad_id, "bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id,
    }  # fmt: skip
    torch.manual_seed(1)
    model = build_model(ModelConfig(**settings | changes))  # type: ignore[arg-type]
    return Encoder(ModelFolder(model, tokenizer, tokenizer, SearchSettings(), Path("runs/bert")))


@pytest.fixture(scope="module", params=["native", "torch"])
def encoder(request: pytest.FixtureRequest) -> Encoder:
    made = encoder_of(pooler=True, labels=("no", "yes", "perhaps"))
    if request.param == "torch":
        made.folder_models.hand_out()
    return made


def test_names_and_shapes_people_know(encoder: Encoder) -> None:
    inputs = encoder.tokenize(TEXTS[:2], ["France", ""])
    assert set(inputs) == {"input_ids", "attention_mask", "token_type_ids"}
    rows, width = inputs["input_ids"].shape
    output = encoder(**inputs)
    assert output.last_hidden_state.shape == (rows, width, 32)
    assert output.pooler_output is not None
    assert output.pooler_output.shape == (rows, 32)
    assert inputs["input_ids"][0, 0] == encoder.tokenizer.bos_id
    border = int(inputs["token_type_ids"][0].argmax())
    assert inputs["input_ids"][0, border - 1] == encoder.tokenizer.eos_id
    assert inputs["token_type_ids"][0, border:].all()
    assert not inputs["token_type_ids"][1].any()
    assert encoder_of()(inputs["input_ids"]).pooler_output is None


def test_padding_and_masked_tokens_are_not_seen(encoder: Encoder) -> None:
    both = encoder.tokenize([TEXTS[1], TEXTS[2]])
    alone = encoder.tokenize([TEXTS[1]])
    length = alone["input_ids"].size(1)
    together = encoder(**both).last_hidden_state[0, :length]
    torch.testing.assert_close(together, encoder(**alone).last_hidden_state[0], rtol=1e-4, atol=1e-5)
    changed = both["input_ids"].clone()
    changed[0, length:] = 7
    masked = encoder(changed, both["attention_mask"]).last_hidden_state[0, :length]
    torch.testing.assert_close(masked, together, rtol=1e-4, atol=1e-5)


def test_segments_matter(encoder: Encoder) -> None:
    inputs = encoder.tokenize([TEXTS[0]], [TEXTS[1]])
    one = encoder(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state
    assert not torch.allclose(one, encoder(**inputs).last_hidden_state, atol=1e-3)


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_vectors_do_not_depend_on_their_batch(encoder: Encoder, pooling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = encoder.embed(TEXTS, pooling, normalize=False)
    assert together.shape == (4, 32)
    assert together.dtype == np.float32
    alone = np.concatenate([encoder.embed([text], pooling, normalize=False) for text in TEXTS])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr("heedful.inference.torch_encoder.BATCH_TOKENS", 20)
    np.testing.assert_allclose(encoder.embed(TEXTS, pooling, normalize=False), alone, rtol=1e-4, atol=1e-5)
    assert np.linalg.norm(encoder.embed(TEXTS, pooling), axis=1) == pytest.approx([1] * 4, abs=1e-5)
    assert encoder.embed([]).shape == (0, 32)


def test_mean_and_first_pooling_are_what_their_names_say(encoder: Encoder) -> None:
    hidden = encoder(**encoder.tokenize(TEXTS[:1])).last_hidden_state[0]
    np.testing.assert_allclose(encoder.embed(TEXTS[:1], normalize=False)[0], hidden.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(encoder.embed(TEXTS[:1], "first", False)[0], hidden[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("blank", ["[MASK]", "<mask>"])
def test_candidates_are_sorted_probabilities(encoder: Encoder, blank: str) -> None:
    (candidates,) = encoder.fill_mask(f"Paris is the {blank} of France.", top=400)
    probabilities = [candidate.probability for candidate in candidates]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1, abs=1e-4)
    assert candidates[0].text == f"Paris is the {candidates[0].token} of France."
    assert not {"<s>", "</s>", "<pad>", "<mask>", "<unk>"} & {candidate.token for candidate in candidates[:300]}
    assert [len(ranking) for ranking in encoder.fill_mask(f"{blank} is {blank}.", top=3)] == [3, 3]


def test_tokens_beside_a_mask_stay_the_same(encoder: Encoder) -> None:
    ids_of_text = encoder.tokenizer.encode("the capital of Rome, not Paris.")
    for word in ("capital", "Rome", "Paris"):
        (place,) = encoder.tokenizer.encode(word)
        text = "the capital of Rome, not Paris.".replace(word, "[MASK]")
        ids, places = encoder._encode_masks(text)
        assert places == [ids_of_text.index(place) + 1]
        assert [i for i in ids[1:-1] if i != encoder.tokenizer.mask_id] == [i for i in ids_of_text if i != place]


def test_a_single_text_is_not_taken_for_a_list_of_letters(encoder: Encoder) -> None:
    with pytest.raises(TypeError, match="'a dog' is one text; give a list"):
        encoder.embed("a dog")
    with pytest.raises(TypeError, match="3 is of type int"):
        encoder.embed(3)  # type: ignore[arg-type]
    assert repr(encoder).startswith("<heedful.Encoder: a ") and repr(encoder).endswith("float32; use classify(…)>")


def test_labels_have_probabilities(encoder: Encoder) -> None:
    predictions = encoder.classify(TEXTS, ["", "x", "", ""])
    assert len(predictions) == 4
    for prediction in predictions:
        assert sum(prediction.probabilities.values()) == pytest.approx(1, abs=1e-5)
        assert (
            prediction.probability
            == max(prediction.probabilities.values())
            == prediction.probabilities[prediction.label]
        )
    assert encoder_of(labels=("a", "b")).classify(["Rome"])[0].label in "ab", "a classifier without a pooler"


def test_long_texts_are_truncated_with_a_notice(encoder: Encoder) -> None:
    said: list[str] = []
    encoder.notice = said.append
    inputs = encoder.tokenize(["Rome " * 100, "Rome"], ["Paris " * 100, "Paris"])
    assert inputs["input_ids"].shape == (2, 40)
    assert len(said) == 1
    assert "text 1 is longer than the 40 tokens" in said[0]
    assert inputs["token_type_ids"][0].sum() > 10
    encoder.embed(["Rome", "Rome " * 100, "Paris " * 100])
    assert said[1:] == ["2 texts are longer than the 40 tokens of this model, and truncated; the first is text 2."]


def test_accuracy_and_macro_f1_by_hand() -> None:
    scores = label_scores(["a", "a", "b", "b", "c"], ["a", "b", "b", "b", "b"])
    assert scores["valid_accuracy"] == pytest.approx(60)
    assert scores["valid_macro_f1"] == pytest.approx(100 * (2 / 3 + 2 * 2 / 6 + 0) / 3)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda e: e.fill_mask("no blank here"), r"write \[MASK\]"),
        (lambda e: e.fill_mask("[MASK] " + "Rome " * 90), "takes 40 at most"),
        (lambda e: e.fill_mask("[MASK]", top=0), "top is 0"),
        (lambda e: e.embed(["x"], pooling="max"), "pooling is 'max'"),
        (lambda e: e.classify(["a"], ["b", "c"]), "1 first texts and 2 second texts were given"),
    ],
)
def test_unsupported_calls_are_one_sentence(encoder: Encoder, use: object, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        use(encoder)  # type: ignore[operator]


def test_other_families_do_not_encode(encoder: Encoder) -> None:
    config = ModelConfig(family="decoder", vocab_size=9, d_model=8, d_ff=8, n_heads=2, decoder_layers=1, max_length=8)
    with pytest.raises(
        FolderError,
        match=r"holds a BERT, which was not trained for classification; use heedful fill-mask or",
    ):
        encoder_of().classify(["a"])
    with pytest.raises(FolderError, match=r"no head for masked-language modeling; use heedful embed\."):
        encoder_of(head="none", output_bias=False).fill_mask("[MASK]")
    with pytest.raises(FolderError, match="holds a GPT, which is not an encoder"):
        Encoder(ModelFolder(build_model(config), encoder.tokenizer, encoder.tokenizer, SearchSettings(), Path("x")))


@pytest.mark.parametrize("by_torch", [False, True], ids=["native", "torch"])
def test_weights_that_overflow_are_an_error(by_torch: bool) -> None:
    encoder = encoder_of(labels=("no", "yes"))
    with torch.no_grad():
        encoder.folder.model.get_parameter("encoder.0.feed.up.weight").fill_(3e38)
        encoder.folder.model.get_parameter("encoder.0.feed.down.weight").fill_(3e38)
    if by_torch:
        encoder.folder_models.hand_out()
    for use in (encoder.embed, encoder.classify, lambda _: encoder.fill_mask("Rome is [MASK].")):
        with pytest.raises(HeedfulError, match="not finite numbers; its weights are damaged"):
            use(["Rome"])
