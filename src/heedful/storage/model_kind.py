"""What a model is called and what it is used with: for model cards and for errors of commands that need another one."""

from __future__ import annotations

from typing import NamedTuple

from heedful.config import ModelConfig


class ModelKind(NamedTuple):
    """A kind of model, the commands and the Python method that use it, and its pipeline tag on the Hugging Face hub.

    A model to start from has no method: further training uses it.
    """

    title: str
    commands: tuple[str, ...]
    method: str
    tag: str
    metrics: tuple[str, ...] = ()

    @property
    def use(self) -> str:
        """How to use a model, as a sentence of its card."""
        if not self.method:
            return "`heedful train --init FOLDER …`, or `heedful.train(init=FOLDER, …)` in Python."
        commands = ", ".join(f"`heedful {command} FOLDER`" for command in self.commands)
        return f"{commands}, or `heedful.load(FOLDER).{self.method}(…)` in Python."


KINDS = {  # by task
    "translation": ModelKind("a translator", ("translate",), "translate", "translation", ("bleu", "chrf")),
    "summarization": ModelKind("a summarizer", ("summarize",), "summarize", "summarization", ("rouge",)),
    "denoising": ModelKind("an encoder-decoder to start from", ("train",), "", "text2text-generation"),
    "speech": ModelKind(
        "a speech recognizer", ("transcribe",), "transcribe", "automatic-speech-recognition", ("wer", "cer")
    ),
    "language-model": ModelKind("a GPT", ("generate",), "generate", "text-generation"),
    "masked-lm": ModelKind("a BERT", ("fill-mask", "embed"), "fill_mask", "fill-mask"),
    "embedding": ModelKind("a BERT", ("embed",), "embed", "feature-extraction"),
    "similarity": ModelKind("a sentence encoder", ("embed", "similar"), "embed", "sentence-similarity"),
    "classification": ModelKind("a classifier", ("classify", "embed"), "classify", "text-classification"),
    "regression": ModelKind("a regression model", ("classify", "embed"), "score", "text-classification"),
    "tagging": ModelKind("a tagger", ("tag",), "tag", "token-classification"),
    "question-answering": ModelKind("a question answering model", ("answer",), "answer", "question-answering"),
}


def model_kind(config: ModelConfig, task: str = "") -> ModelKind:
    """The kind of a model; `task` is that of its folder, which names one where the configuration does not tell."""
    if task in KINDS:
        return KINDS[task]
    if config.family == "encoder-decoder":
        return KINDS["speech" if config.features else "translation"]
    if config.family == "decoder":
        return KINDS["language-model"]
    return KINDS[config.label_kind if config.labels else "embedding" if config.head == "none" else "masked-lm"]
