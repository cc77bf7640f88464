"""What all routes share: the models, the limits, the keys, and whether the server is about to end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from heedful.serve.admission import B, read
from heedful.serve.metrics import Metrics
from heedful.serve.model_process import ModelProcess, ModelProcesses
from heedful.serve.problems import ProblemError
from heedful.serve.server_settings import ServerSettings
from heedful.serve.text_sentences import Translated, sentences

TASKS = {"encoder-decoder": "translate", "decoder": "write", "encoder": "fill"}
USUAL_BEAM = 4  # a wider one counts as more sentences
SIDE_SHARE = 4  # alignments and attention of one request take up to this part of the queue: a quarter
OPENING = 24  # characters of a text that may hold a language code, such as >>fr<<


@dataclass
class ServerState:
    """The server."""

    settings: ServerSettings
    engines: ModelProcesses
    keys: frozenset[str]
    metrics: Metrics = field(default_factory=Metrics)
    draining: bool = False

    async def read(self, request: Request, schema: type[B]) -> B:
        return await read(request, schema, self.settings.limits, self.keys)

    async def translate(
        self,
        engine: ModelProcess,
        texts: Sequence[str],
        beam: int | None = None,
        fields: Sequence[str] = ("text",),
        **asked: Any,
    ) -> list[Translated]:
        """Texts, sentence by sentence, and of each translation what is asked for."""
        n_best = asked.get("search", {}).get("n_best", 1) if asked.get("alignments") or asked.get("attention") else 0
        self._check_aligned(sum(map(len, texts)), n_best)
        parts = [sentences(text) for text in texts]
        every = [sentence.text for part in parts for sentence in part]
        openings = [part[0].text[:OPENING] for part in parts for _ in part]
        if not every:
            return [Translated(text, [], []) for text in texts]
        side_work = len(every) * n_best * (2 if asked.get("attention") else 1)
        cost = len(every) * max(1, math.ceil((beam or 1) / USUAL_BEAM))
        cost += min(side_work, self.settings.limits.queue // SIDE_SHARE)
        asked |= {"texts": every, "openings": openings, "fields": fields}
        ways = iter(await engine.ask(asked, cost))
        return [Translated(text, part, [next(ways) for _ in part]) for text, part in zip(texts, parts, strict=True)]

    def _check_aligned(self, characters: int, n_best: int) -> None:
        """Alignments run the model again for each translation, so that their number counts as much as the length."""
        most = self.settings.limits.characters
        if characters * n_best > most:
            said = f"alignments or attention of {n_best} translations of {characters:,} characters take too long"
            raise ProblemError(413, f"{said}; ask for fewer, or send {most // n_best:,} characters at most.")

    def model(self, name: str | None, task: str) -> ModelProcess:
        """The model of this name, or the first that does this."""
        ready = [
            each
            for each in self.engines.by_name.values()
            if TASKS.get(each.card.get("family", "")) == task and (task != "fill" or each.card["fills"])
        ]
        if name is None:
            if not ready:
                raise ProblemError(404, f"no model that can {task} is served here.", code="model_not_found")
            return ready[0]
        engine = self.engines.by_name.get(name)
        if engine is None:
            known = ", ".join(each.served.name for each in ready) or "there is none"
            raise ProblemError(
                404, f"there is no model {name[:64]!r}; those that can {task}: {known}.", param="model",
                code="model_not_found",
            )  # fmt: skip
        if engine.ready and engine not in ready:
            raise ProblemError(404, f"the model {name} does not {task}.", param="model", code="model_not_found")
        return engine

    def translator(self, source: str | None, target: str | None) -> ModelProcess:
        """The translator between these languages."""
        found = self.engines.translators(source, target)
        if found:
            return found[0]
        raise self._no_translator(source, target)

    def _no_translator(self, source: str | None, target: str | None) -> ProblemError:
        pairs = sorted({str(each.served.pair) for each in self.engines.translators()})
        if not pairs:
            return ProblemError(404, "no translator is served here.")
        asked = f"{(source or '?')[:16]}-{(target or '?')[:16]}"
        known = ", ".join(pairs)
        return ProblemError(422, f"{asked} is not translated here; these are: {known}.", param="target")

    async def detect(self, text: str, candidates: Sequence[ModelProcess]) -> list[tuple[ModelProcess, float]]:
        """Translators by how sure they are of what they make of a text, with the mean probability of their tokens."""
        first = sentences(text)[:3]
        found = []
        for engine in candidates:
            asked = {"texts": [each.text[:300] for each in first], "search": {"beam": 1, "n_best": 1}}
            asked["fields"] = ("token_log_probs",)
            ways = await engine.ask(asked, len(first)) if first else []
            steps = [value for each in ways for way in each[:1] for value in way["token_log_probs"]]
            found.append((engine, math.exp(sum(steps) / len(steps)) if steps else 0.0))
        return sorted(found, key=lambda each: -each[1])
