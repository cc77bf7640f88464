"""The word alignment of a recorded translation, and the heads that it is read off."""

from __future__ import annotations

from typing import Any

import torch

from heedful.inference.alignment import HeadChoice, align_words, choose_heads, cross_attention, weights_by_word
from heedful.inference.forced_decoding import Pair, frame_pair
from heedful.inference.torch_forced_decoder import TorchForcedDecoder
from heedful.inside.page_data import attention_weights, sound_heads
from heedful.inside.page_packing import half
from heedful.inside.recorded_run import RecordedRun
from heedful.model.transformer import EncoderDecoder
from heedful.text import NO_WORD, words_of_spans
from heedful.text.words import words as words_in


def alignment_heads(run: RecordedRun) -> HeadChoice:
    """The heads that align the words of a translation, or follow the sound of a recording."""
    assert isinstance(run.folder.model, EncoderDecoder)
    if run.sound is not None:
        return HeadChoice(tuple(sound_heads(attention_weights(run, "decoder", "cross"))))
    return choose_heads(TorchForcedDecoder(run.folder.model), [_pair(run)])


def alignment(run: RecordedRun) -> dict[str, Any] | None:
    """The word alignment of a recorded translation, with the attention weights behind it."""
    model, source, target = run.folder.model, run.source, run.target
    if not isinstance(model, EncoderDecoder) or source is None or target is None or model.config.features:
        return None
    labels = _labels(run)
    if not labels:
        return None
    choice = alignment_heads(run)
    (weights,) = cross_attention(TorchForcedDecoder(model), [_pair(run)], choice)  # (T, S)
    written, spans = run.folder.tokenizer.decode_spans(labels)
    source_spans = run.folder.source_tokenizer.spans(run.text)[: len(source.ids) - 1]
    words = words_of_spans(run.text, source_spans), words_of_spans(written, spans)
    if any(set(side) <= {NO_WORD} for side in words):
        return None
    return {
        "sourceWords": words_in(run.text)[: max(words[0]) + 1],
        "targetWords": words_in(written)[: max(words[1]) + 1],
        "links": [list(link) for link in align_words(weights, *words)],
        "matrix": half(torch.from_numpy(weights_by_word(weights, *words))),
        "choice": {"heads": choice.names, "shift": choice.shift},
    }


def _labels(run: RecordedRun) -> list[int]:
    return [token for token in run.labels if token != run.folder.tokenizer.eos_id]


def _pair(run: RecordedRun) -> Pair:
    assert run.source is not None
    specials = run.folder.source_tokenizer.specials, run.folder.tokenizer.specials
    return frame_pair(run.source.ids[:-1], _labels(run), *specials)
