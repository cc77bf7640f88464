"""State that all routes share: models, settings, API keys, metrics, and whether the server is draining."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from heedful.formats.termbase import terms_of_mapping
from heedful.serve.file_store import FileStore
from heedful.serve.http_errors import HttpError
from heedful.serve.model_process import ModelProcess, ModelProcesses
from heedful.serve.prometheus import Metrics
from heedful.serve.request_checks import B, parse_request
from heedful.serve.server_settings import ServerSettings
from heedful.text.text_sentences import SentenceTranslations, split_sentences

USUAL_BEAM = 4  # a wider beam counts as more sentences
SIDE_SHARE = 4  # alignments and attention of one request take at most 1 / SIDE_SHARE of the queue
OPENING_CHARACTERS = 24  # start of a text, which may contain a language code such as >>fr<<


def task_of(model: ModelProcess) -> str:
    """What a model does: translate, summarize, write, fill, inspect or transcribe; empty while it is loaded."""
    task: str = model.info.get("task", "")
    return task


@dataclass
class ServerState:
    """The state of the server, and the choice of a model for a request."""

    settings: ServerSettings
    models: ModelProcesses
    keys: frozenset[str]
    metrics: Metrics = field(default_factory=Metrics)
    draining: bool = False
    files: FileStore = field(default_factory=FileStore)

    async def read(self, request: Request, schema: type[B]) -> B:
        return await parse_request(request, schema, self.settings.limits, self.keys)

    async def translate(
        self,
        model: ModelProcess,
        texts: Sequence[str],
        beam: int | None = None,
        fields: Sequence[str] = ("text",),
        **options: Any,
    ) -> list[SentenceTranslations]:
        """Split texts into sentences and translate these; `fields` are the attributes of each translation to return."""
        aligned = options.get("alignments") or options.get("attention")
        n_best = options.get("search", {}).get("n_best", 1) if aligned else 0
        self._check_alignment_cost(sum(map(len, texts)), n_best)
        spans = [split_sentences(text) for text in texts]
        sentences = [span.text for of_text in spans for span in of_text]
        openings = [of_text[0].text[:OPENING_CHARACTERS] for of_text in spans for _ in of_text]
        if not sentences:
            return [SentenceTranslations(text, [], []) for text in texts]
        side_work = len(sentences) * n_best * (2 if options.get("attention") else 1)
        cost = len(sentences) * max(1, math.ceil((beam or 1) / USUAL_BEAM))
        cost += min(side_work, self.settings.limits.queue // SIDE_SHARE)
        terms = terms_of_mapping(options.pop("glossary", {})) + self.settings.glossary
        options |= {"texts": sentences, "openings": openings, "fields": fields, "glossary": terms}
        results = iter(await model.request(options, cost))
        return [
            SentenceTranslations(text, of_text, [next(results) for _ in of_text])
            for text, of_text in zip(texts, spans, strict=True)
        ]

    def _check_alignment_cost(self, characters: int, n_best: int) -> None:
        """Limit characters times translations: alignments run the model again for each translation."""
        limit = self.settings.limits.max_characters
        if characters * n_best > limit:
            problem = f"alignments or attention of {n_best} translations of {characters:,} characters take too long"
            raise HttpError(
                413, f"{problem}; request fewer translations, or send {limit // n_best:,} characters at most."
            )

    def model(self, name: str | None, task: str) -> ModelProcess:
        """The model of this name, or the first one for this task."""
        ready = [model for model in self.models.by_name.values() if task_of(model) == task]
        if name is None:
            if not ready:
                raise HttpError(404, f"no model that can {task} is served here.", code="model_not_found")
            return ready[0]
        named = self.models.by_name.get(name)
        if named is None:
            known = ", ".join(model.served.name for model in ready) or "none"
            raise HttpError(
                404, f"there is no model {name[:64]!r}; models that can {task}: {known}.", param="model",
                code="model_not_found",
            )  # fmt: skip
        if named.ready and named not in ready:
            raise HttpError(404, f"the model {name} cannot {task}.", param="model", code="model_not_found")
        return named

    def translator(self, source: str | None, target: str | None) -> ModelProcess:
        """The translator between these languages."""
        if translators := self.models.translators(source, target):
            return translators[0]
        pairs = sorted({str(model.served.pair) for model in self.models.translators()})
        if not pairs:
            raise HttpError(404, "no translator is served here.")
        pair = f"{(source or '?')[:16]}-{(target or '?')[:16]}"
        raise HttpError(422, f"no model translates {pair}; available: {', '.join(pairs)}.", param="target")

    async def detect(self, text: str, candidates: Sequence[ModelProcess]) -> list[tuple[ModelProcess, float]]:
        """Translators by confidence: the geometric mean probability of the tokens of their greedy translations."""
        first = split_sentences(text)[:3]
        confidences = []
        for model in candidates:
            payload: dict[str, Any] = {"texts": [sentence.text[:300] for sentence in first]}
            payload |= {"search": {"beam": 1, "n_best": 1}, "fields": ("token_log_probs",)}
            results = await model.request(payload, len(first)) if first else []
            log_probs = [value for n_best in results for best in n_best[:1] for value in best["token_log_probs"]]
            confidences.append((model, math.exp(sum(log_probs) / len(log_probs)) if log_probs else 0.0))
        return sorted(confidences, key=lambda pair: -pair[1])
