"""A patched model computes what the change says, in one pass and in search."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from heedful.errors import SettingError
from heedful.inference.record import record
from heedful.inference.translator import Translator
from heedful.inside import Head, heads, heads_off, patch

SOURCE, TARGET = torch.tensor([[9, 300, 310, 41, 3], [300, 8, 3, 0, 0]]), torch.tensor([[2, 290, 333], [2, 301, 0]])


def test_heads_are_counted_encoder_first(translator_folder, make_folder):
    result = heads(translator_folder.model)
    assert len(result) == 2 * 4 + 2 * 4 + 2 * 4
    assert [str(head) for head in (result[0], result[-1])] == ["encoder.0.self.0", "decoder.1.cross.3"]
    assert all(Head.parse(str(head)) == head for head in result)
    assert {head.kind for head in heads(make_folder("decoder").model)} == {"self"}


def test_an_ablated_head_equals_a_zero_block_of_the_output_matrix(translator_folder):
    model = translator_folder.model
    with torch.no_grad(), heads_off(model, [Head.parse("decoder.1.cross.2")]):
        off = model(SOURCE, TARGET)
    weight = model.decoder.get_submodule("1").cross.output.weight
    remaining = weight.detach().clone()
    with torch.no_grad():
        weight[:, 8:12] = 0
        by_hand = model(SOURCE, TARGET)
        weight.copy_(remaining)
        whole = model(SOURCE, TARGET)
    assert_close(off, by_hand)
    assert (whole - off).abs().max() > 1e-3


def test_an_activation_is_replaced_by_a_function_a_tensor_or_a_number(translator_folder):
    model, name = translator_folder.model, "decoder.0.self_residual"
    with torch.no_grad(), record(model, "*") as plain:
        model(SOURCE, TARGET)
    for change, expected in [
        (lambda x: 2 * x, 2 * plain[name]),
        (plain[name][:1].clone(), plain[name][:1].expand(2, -1, -1)),
        (0, torch.zeros_like(plain[name] + 0)),
    ]:
        with torch.no_grad(), patch(model, {name: change}), record(model, "*") as trace:
            model(SOURCE, TARGET)
        assert_close(trace[name] + 0, expected)
        assert_close(trace["decoder.0.self.heads"] + 0, plain["decoder.0.self.heads"] + 0)
        assert not torch.allclose(trace["decoder"] + 0, plain["decoder"] + 0)


def test_replaced_weights_are_what_is_gathered_with(translator_folder):
    def uniform(weights):
        return torch.full_like(weights, 1 / weights.size(-1))

    model = translator_folder.model
    with torch.no_grad(), patch(model, {"decoder.1.cross.weights": uniform}), record(model, "*") as trace:
        model(SOURCE, TARGET)
    mean = trace["decoder.1.cross.values"].mean(2, keepdim=True)
    assert_close(trace["decoder.1.cross.heads"] + 0, mean.expand(-1, -1, 3, -1))


def test_beams_are_patched_as_rows(translator_folder):
    """A change that depends on the row gives every beam the same, or the search would mix them up."""
    translator, rows = Translator([translator_folder]), []

    def note(weights):
        rows.append(tuple(weights.shape[:3]))
        return weights

    text = "The old man sleeps."
    plain = translator.translate(text, beam=3, loop_guard=False)
    with patch(translator, {"decoder.0.cross.weights": note}):
        assert translator.translate(text, beam=3, loop_guard=False) == plain
    assert rows[0] == (1, 4, 1)
    assert set(rows[1:]) == {(3, 4, 1)}
    with heads_off(translator, heads(translator)):
        off = translator.translations([text], beam=3, loop_guard=False)[0][0]
    assert off.score != translator.translations([text], beam=3, loop_guard=False)[0][0].score


def test_wrong_names_are_explained(translator_folder):
    with (
        pytest.raises(SettingError, match=r"did you mean decoder\.0\.cross\.weights"),
        patch(translator_folder.model, {"decoder.0.cros.weights": 0}),
    ):
        pass
    with (
        pytest.raises(SettingError, match=r"no head decoder\.1\.cross\.9; its last is decoder\.1\.cross\.3"),
        heads_off(translator_folder.model, [Head("decoder", 1, "cross", 9)]),
    ):
        pass
    with pytest.raises(SettingError, match="'decoder' is no head"):
        Head.parse("decoder")
