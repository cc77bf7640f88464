"""Summarization: an encoder-decoder learns a short target given a long source; ROUGE-L selects the model.

Everything but lengths, scores and defaults is that of translation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from heedful.config import DataSettings, RunConfig
from heedful.config.presets import SUMMARIZATION, Sections
from heedful.evaluation.rouge import KINDS, rouge_f1
from heedful.inference.summarizer import Summarizer
from heedful.inference.translator import Translator
from heedful.storage.folder import ModelFolder
from heedful.training.run_report import Column
from heedful.training.tasks.task import Scores
from heedful.training.tasks.translation import TranslationTask

MAX_SOURCE_LENGTH = 1024  # tokens of a document that are read, unless data.max_source_length is set
NO_RATIO = 1e6  # a summary is much shorter than its source


class SummarizationTask(TranslationTask):
    """Documents with their summaries; long documents are truncated, and models are ranked by ROUGE-L."""

    folder_task: ClassVar[str] = "summarization"
    columns = (
        Column("valid_loss", "loss", 3),
        Column("valid_perplexity", "perplexity"),
        *(Column(f"valid_{kind}", f"ROUGE-{kind[5:]}", percent=True) for kind in KINDS),
    )
    metric: ClassVar[tuple[str, str]] = ("valid_rougeL", "ROUGE-L")
    defaults: ClassVar[Sections] = SUMMARIZATION
    data_defaults: ClassVar[dict[str, Any]] = {
        "max_source_length": MAX_SOURCE_LENGTH,
        "truncate_source": True,
        "max_ratio": NO_RATIO,
    }
    translator_type: ClassVar[type[Translator]] = Summarizer

    @classmethod
    def with_data_defaults(cls, config: RunConfig, init: ModelFolder | None) -> RunConfig:
        """No more of a document is read than the `init` model has positions for."""
        config, fields_set = super().with_data_defaults(config, init), config.data.model_fields_set
        if init is None:
            return config
        most = init.config.max_length - 1
        limits = {name: min(most, getattr(config.data, name)) for name in ("max_source_length", "max_length")}
        return config.replace(data={name: value for name, value in limits.items() if name not in fields_set})

    def resolve(self, user_config: RunConfig, init: ModelFolder | None) -> RunConfig:
        """A new summarizer copies from its source (model.pointer) where both have one vocabulary."""
        model = user_config.model if init is None else init.config
        new = init is None or init.task == "denoising"
        possible = self.corpus.joint and model.architecture == "transformer" and not user_config.train.rdrop
        if new and possible and "pointer" not in user_config.model.model_fields_set:
            user_config = user_config.replace(model={"pointer": True})
        return super().resolve(user_config, init)

    def own_defaults(self, section: str) -> dict[str, Any]:
        """A summary may be as long as the longest one of the training set."""
        longest = int(self.corpus.train.targets.lengths.max(initial=1)) + 1
        return super().own_defaults(section) | ({"max_length": longest} if section == "search" else {})

    @classmethod
    def max_positions(cls, data: DataSettings) -> int:
        """A new model has positions for the longest document, or the longest summary."""
        return max(data.max_source_length or MAX_SOURCE_LENGTH, data.max_length) + 1

    def compare(self, outputs: Sequence[str], references: Sequence[str]) -> Scores:
        means = rouge_f1(outputs, references).mean(0)
        return {f"valid_{kind}": float(mean) for kind, mean in zip(KINDS, means, strict=True)}
