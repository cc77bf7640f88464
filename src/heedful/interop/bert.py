"""BERT: an encoder alone, post-norm, with learned positions and token types, and a norm after the embeddings.

What stands on top differs: a head that guesses masked tokens, a pooler, a classifier on it, several or none of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, ClassVar

from torch import Tensor

from heedful.config import ModelConfig
from heedful.config.model_config import LabelKind
from heedful.interop.architecture import Architecture, refused, with_output_bias
from heedful.interop.setting_mapping import Settings
from heedful.interop.untrusted import ForeignConfig
from heedful.interop.weight_mapping import WeightLayout, WeightMapping, both

HEAD = "cls.predictions"
CLASSES: dict[LabelKind, str] = {
    "classification": "BertForSequenceClassification",
    "regression": "BertForSequenceClassification",
    "tagging": "BertForTokenClassification",
    "question-answering": "BertForQuestionAnswering",
}
POOLED = ("classification", "regression")  # their classifier sees what the pooler gives
MOST_LABELS = 10_000
IGNORED = r"^bert\.embeddings\.(position|token_type)_ids$|^cls\.seq_relationship\.|^cls\.predictions\.(decoder\.)?bias$"


class Bert(Architecture):
    model_type, title, family = "bert", "BERT", "encoder"
    fixed: ClassVar[dict[str, object]] = {
        "pre_norm": False,
        "positions": "learned",
        "embedding_norm": True,
        "scale_embedding": False,
        "bias": True,
    }
    settings: ClassVar[Settings] = {
        "vocab_size": ("vocab_size", 30522),
        "d_model": ("hidden_size", 768),
        "d_ff": ("intermediate_size", 3072),
        "n_heads": ("num_attention_heads", 12),
        "encoder_layers": ("num_hidden_layers", 12),
        "norm_eps": ("layer_norm_eps", 1e-12),
        "activation": ("hidden_act", "gelu"),
        "max_length": ("max_position_embeddings", 512),
        "tie": ("tie_word_embeddings", True),
        "token_types": ("type_vocab_size", 2),
        "dropout": ("hidden_dropout_prob", 0.1),
        "attention_dropout": ("attention_probs_dropout_prob", 0.1),
        "pad_id": ("pad_token_id", 0),
        "bos_id": ("bos_token_id", lambda settings: settings["pad_id"]),
        "eos_id": ("eos_token_id", lambda settings: settings["pad_id"]),
    }

    def config(self, foreign: ForeignConfig, names: Collection[str]) -> ModelConfig:
        foreign.only(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
        head = any(name.startswith(f"{HEAD}.") for name in names)
        kind = _label_kind(foreign)
        labels = _labels(foreign, kind) if kind else ()
        if kind == "classification":
            foreign.only(problem_type="single_label_classification")
        settings = self.read_settings(foreign)
        return ModelConfig(
            **settings | ({} if head else {"tie": "all"}),
            head="transform" if head else "none",
            output_bias=head,
            pooler="bert.pooler.dense.weight" in names or kind in POOLED,
            labels=labels,
            label_kind=kind or "classification",
        )

    def canonical(self, name: str) -> str:
        name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
        return f"bert.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name

    def written(self, name: str, config: ModelConfig) -> str:
        return name.removeprefix("bert.") if _kind(config) == "BertModel" else name

    def layout(self, config: ModelConfig) -> WeightLayout:
        words = "bert.embeddings.word_embeddings.weight"
        places = {
            words: WeightMapping(("embedding.weight",)),
            "bert.embeddings.position_embeddings.weight": WeightMapping(("encoder.position.table",)),
            "bert.embeddings.token_type_embeddings.weight": WeightMapping(("token_types.weight",)),
            **both("bert.embeddings.LayerNorm", "encoder.first_norm"),
        }
        for index in range(config.encoder_layers):
            places |= _block(f"bert.encoder.layer.{index}", f"encoder.{index}")
        if config.pooler:
            places |= both("bert.pooler.dense", "pooler")
        if config.labels:
            answers = config.label_kind == "question-answering"
            places |= both("qa_outputs" if answers else "classifier", "classifier")
        copies: dict[str, tuple[str, ...]] = {}
        if config.head == "transform":
            places |= both(f"{HEAD}.transform.dense", "transform.dense")
            places |= both(f"{HEAD}.transform.LayerNorm", "transform.norm")
            bias, linear_bias = f"{HEAD}.bias", f"{HEAD}.decoder.bias"
            if config.tie == "none":
                places[f"{HEAD}.decoder.weight"] = WeightMapping(("output.weight",))
                bias, linear_bias = linear_bias, bias  # if untied, the other one is unused
            else:
                copies |= {f"{HEAD}.decoder.weight": (words,), linear_bias: (bias,)}
            if config.output_bias:
                places[bias] = WeightMapping(("output_bias",))
        return WeightLayout(places, copies, ignored=IGNORED)

    def description(self, config: ModelConfig) -> dict[str, Any]:
        numbered = dict(enumerate(config.labels))
        named = numbered and config.label_kind != "question-answering"
        labels = {"id2label": numbered, "label2id": {label: i for i, label in numbered.items()}} if named else {}
        if config.label_kind == "regression":
            labels["problem_type"] = "regression"
        return labels | self.write_settings(config, _kind(config))

    def check(self, config: ModelConfig) -> None:
        super().check(config)
        if config.head == "linear":
            raise refused("head", "linear", "a BERT model has a dense layer and a norm before its logits")
        if config.labels and config.label_kind in POOLED and not config.pooler:
            raise refused("pooler", False, "in a BERT model a classifier sees what the pooler gives")
        if config.tie == "none":
            raise refused("tie", "none", "in a BERT model the output projection is the embeddings")
        if config.token_types == 0:
            raise refused("token_types", 0, "a BERT model tells at least one kind of segment apart")

    def outwards(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return with_output_bias(state)


def _kind(config: ModelConfig) -> str:
    """The transformers class for the model's head."""
    if config.labels:
        return CLASSES[config.label_kind]
    return "BertForMaskedLM" if config.head == "transform" else "BertModel"


def _label_kind(foreign: ForeignConfig) -> LabelKind | None:
    """What the labels describe, by the class of the model; None if it has none."""
    names = foreign.values.get("architectures")
    if names == [CLASSES["classification"]] and foreign.values.get("problem_type") == "regression":
        return "regression"
    return next((kind for kind, name in CLASSES.items() if names == [name]), None)


def _labels(foreign: ForeignConfig, kind: LabelKind) -> tuple[str, ...]:
    """{"0": "bad", "1": "good"} -> the labels in order; without names there are two."""
    if kind == "question-answering":
        return ("start", "end")
    if kind == "regression":
        return ("score",)
    table = foreign.values.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    named = isinstance(table, dict) and 1 < len(table) <= MOST_LABELS
    if not named or not all(isinstance(table.get(str(i)), str) for i in range(len(table))):
        raise foreign.wrong(
            "id2label", f"a table of two labels or more, numbered from 0 to {MOST_LABELS - 1:,} at most"
        )
    return tuple(table[str(i)] for i in range(len(table)))


def _block(foreign_block: str, block: str) -> dict[str, WeightMapping]:
    names = {
        "attention.self.query": "self.query",
        "attention.self.key": "self.key",
        "attention.self.value": "self.value",
        "attention.output.dense": "self.output",
        "attention.output.LayerNorm": "self_residual.norm",
        "intermediate.dense": "feed.up",
        "output.dense": "feed.down",
        "output.LayerNorm": "feed_residual.norm",
    }
    return {
        name: place for t, o in names.items() for name, place in both(f"{foreign_block}.{t}", f"{block}.{o}").items()
    }
