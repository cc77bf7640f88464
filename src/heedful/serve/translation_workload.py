"""The translation tasks of a model process: the parts of all sentences are searched, then joined by task."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from heedful.inference.results import SourcePart, Translation, join_parts
from heedful.inference.scheduler import SearchBackend
from heedful.inference.term_matching import Glossary
from heedful.inference.translator import Translator
from heedful.search import Hypothesis, SearchOptions
from heedful.serve.messages import Counts
from heedful.serve.workload import Job, Workload


class TranslationJob(Job):
    """The sentences of a task. Its result is the parts of each sentence, and the translations of each part."""

    def __init__(self, translator: Translator, sentences: list[list[SourcePart]], options: SearchOptions) -> None:
        self.translator, self.sentences = translator, sentences
        parts = list(chain.from_iterable(sentences))
        self.searched = [
            place for place, part in enumerate(parts) if part.ids
        ]  # others are copied, such as a placeholder
        self.requests = [translator.search_request(parts[place], options) for place in self.searched]
        self.tokens_in = sum(len(part.ids) for part in parts)
        self.translations: list[list[Translation]] = [[] for _ in parts]

    def take(self, place: int, result: list[Hypothesis], counts: Counts) -> None:
        self.translations[self.searched[place]] = self.translator.decode(result)
        counts.tokens_out += sum(len(hypothesis.ids) for hypothesis in result)

    def result(self) -> tuple[list[list[SourcePart]], list[list[list[Translation]]]]:
        remaining = iter(self.translations)
        return self.sentences, [[next(remaining) for _ in parts] for parts in self.sentences]


class TranslationWorkload(Workload):
    """A translator and its tasks."""

    def __init__(
        self,
        translator: Translator,
        backend: SearchBackend | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(backend or translator.shared_backend(), clock)
        self.translator = translator
        config = translator.configs[0]
        self.vocab_size, self.special = config.vocab_size, {config.bos_id, config.eos_id, config.pad_id}
        self.options = lru_cache(128)(self._options)
        self.glossary = lru_cache(16)(Glossary)

    def job(self, payload: dict[str, Any]) -> TranslationJob:
        options, texts = self.options(tuple(payload.get("search", {}).items())), payload["texts"]
        prefixes = [payload.get("prefix", "")] * len(texts)
        terms = payload.get("glossary", ())
        glossary = self.glossary(terms) if terms else None
        parts = self.translator.parts(texts, prefixes, openings=payload.get("openings", ()), glossary=glossary)
        self._check_prefixes(options, parts)
        sentences: list[list[SourcePart]] = [[] for _ in texts]
        for part in parts:
            sentences[part.line].append(part)
        return TranslationJob(self.translator, sentences, options)

    def _options(self, search: tuple[tuple[str, Any], ...]) -> SearchOptions:
        """The folder's search settings with the changes of a task, which are none for most."""
        options = self.translator.options(dict(search))
        options.check_beam()
        return options

    def _check_prefixes(self, options: SearchOptions, parts: list[SourcePart]) -> None:
        """Refuse a prefix before the search would, when other tasks are in it."""
        if any(part.prefix for part in parts):
            forced = options.model_copy(update={"prefix": tuple(part.prefix for part in parts)})
            forced.check(len(parts), self.vocab_size, self.special)


def translations(
    sentences: list[list[list[Translation]]], fields: Sequence[str] = ("text",)
) -> list[list[dict[str, Any]]]:
    """The translations of the parts of each sentence -> those of the sentence, best first, with these fields."""
    joined = [join_parts(parts) if parts else [] for parts in sentences]
    return [[{name: getattr(translation, name) for name in fields} for translation in n_best] for n_best in joined]
