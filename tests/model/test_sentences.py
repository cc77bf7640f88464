"""A Transformer that reads sentences, against sums in NumPy and the same stack on those sums."""

import numpy as np
import pytest
import torch

from heedful.data.batch import LabeledBatch
from heedful.model.context import Context
from heedful.training.losses import classification_loss

from .samples import another, fresh, pad_right, shared, small
from .test_memory_network import END, STORIES, embed, split, story_ids


def reader(**changes):
    sizes = {"family": "encoder", "sentence_input": True, "sentence_ends": (END,), "universal": True}
    return small(**sizes | {"encoder_layers": 3} | changes)


@pytest.mark.parametrize("changes", [{}, {"act_halting": True}, {"universal": False, "positions": "rotary"}])
def test_the_stack_reads_the_question_first_and_then_the_latest_sentences(changes):
    model, ids = shared(reader(**changes)), story_ids()
    hidden, table = model(ids), model.embedding.weight.numpy() * 4.0  # √d_model is 4
    for row, story in enumerate(STORIES):
        vectors = [embed(sentence, table) for sentence in split(story)[::-1]]
        alone = model.encoder(torch.tensor(np.array([vectors])), Context())[0, 0]
        for place in range(ids.size(1)):
            torch.testing.assert_close(hidden[row, place], alone)
    torch.testing.assert_close(model(pad_right(ids, 3))[:, :1], hidden[:, :1])


def test_every_sentence_is_felt_and_a_text_without_words_is_no_error():
    model, ids = shared(reader()), story_ids()[2:]
    for place in (1, 3, 5, 7, 9, 12):
        changed = ids.clone()
        changed[0, place] = another(ids[0, place])
        assert (model(changed) - model(ids)).abs().max() > 1e-6
    assert model(torch.tensor([[2, 3]])).isfinite().all()


def test_the_ponder_cost_is_that_of_sentences():
    """The mean over the sentences of a text, whatever the padding."""
    model, ids = fresh(reader(act_halting=True, labels=("a", "b"), dropout=0.0)), story_ids()
    batch = LabeledBatch(ids, torch.zeros_like(ids), torch.tensor([0, 1, 0]))
    times = []
    with model.encoder.ponder.register_forward_hook(lambda tap, inputs, out: times.append(out)):
        charged = classification_loss(model, batch).smoothed
    model.config = model.config.model_copy(update={"ponder_cost": 0.0})
    cost = sum(times[0][row, : len(split(story))].mean() for row, story in enumerate(STORIES))
    torch.testing.assert_close(charged - classification_loss(model, batch).smoothed, 0.01 * cost)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "decoder"}, "sentence_input is for an encoder"),
        ({"architecture": "rnn", "universal": False}, "sentence_input is a setting of the transformer"),
        ({"label_kind": "tagging"}, "model.sentence_input=true has one state for a whole text, and tagging labels"),
    ],
)
def test_what_has_no_sentences_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        reader(**changes)
