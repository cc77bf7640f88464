"""Options of a search: the settings of the model folder, and the changes of a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, InstanceOf

from heedful.config import SearchSettings, validate_section
from heedful.errors import SettingError
from heedful.search.lexical_constraints import LexicalConstraint
from heedful.search.observer import Observer

if TYPE_CHECKING:
    from torch import Tensor

    # (R, V) log-probabilities, (R, t) ids so far without bos, (R,) sentence of each row -> (R, V) log-probabilities
    Constraint = Callable[[Tensor, Tensor, Tensor], Tensor]
else:
    Constraint = Callable[..., Any]  # enough for the check at run time, without importing torch


class SearchOptions(SearchSettings):
    """Options of a search. Beam search reads `beam` and `length_penalty`, sampling reads `temperature` to `seed`."""

    n_best: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Hypotheses or samples for each sentence.")
    limit: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Maximum number of output tokens that the model supports."
    )
    temperature: Annotated[float, Field(ge=0)] = Field(
        1.0, description="Below 1 sharpens the distribution that is sampled from, above 1 flattens it; 0 is greedy."
    )
    top_k: Annotated[int, Field(ge=0)] = Field(0, description="Sample among this many most probable tokens; 0 for all.")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="Sample among the fewest tokens whose probabilities sum to this; 1 for all."
    )
    min_p: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="Sample among tokens at least this probable relative to the best one; 0 for all."
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(1, description="The same seed samples the same text.")
    prefix: tuple[tuple[int, ...], ...] | None = Field(
        None, description="For each sentence the ids that its output must begin with."
    )
    shortlists: tuple[InstanceOf[np.ndarray] | None, ...] | None = Field(
        None, description="For each sentence the ids that its output may have, in ascending order, or None for all."
    )
    phrases: tuple[InstanceOf[LexicalConstraint] | None, ...] | None = Field(
        None, description="For each sentence the phrases that its output must contain, or None; for beam search."
    )
    constraints: tuple[Constraint, ...] = Field((), description="Functions on log-probabilities, applied in order.")
    observer: InstanceOf[Observer] | None = Field(None, description="Called at every step of the search.")

    @classmethod
    def of(cls, settings: SearchSettings, **changes: Any) -> SearchOptions:
        """The settings of a model folder with the changes of one request."""
        options: SearchOptions = validate_section(cls, settings.model_dump() | changes, where="search")
        return options

    def limits(self, source_lengths: Tensor) -> Tensor:
        """(B,) -> (B,) maximum number of output tokens of each sentence, eos included."""
        lengths = source_lengths.tolist()
        prefixes = [len(ids) for ids in self.prefix] if self.prefix else [0] * len(lengths)
        most = [self.max_target_length(length, prefix) for length, prefix in zip(lengths, prefixes, strict=True)]
        return source_lengths.new_tensor(most)

    def max_target_length(self, source_length: int, prefix_length: int = 0) -> int:
        """Maximum number of output tokens of one sentence, eos included; always more than its prefix has."""
        most = self.max_length or max(source_length + self.max_extra, prefix_length + 1)
        return most if self.limit is None else min(most, self.limit)

    def check_beam(self) -> None:
        """Refuse more hypotheses than the beam is wide."""
        if self.n_best > self.beam:
            raise SettingError(
                f"n_best ({self.n_best}) must not be above beam ({self.beam}); raise the beam, or ask for fewer."
            )

    def check(self, sentences: int, vocab_size: int, special: set[int]) -> None:
        """Refuse prefixes that no output can begin with."""
        if self.prefix is None:
            return
        if len(self.prefix) != sentences:
            raise SettingError(f"{len(self.prefix)} prefixes were given for {sentences} sentences; give one for each.")
        most = min((limit for limit in (self.max_length, self.limit) if limit is not None), default=None)
        for ids in self.prefix:
            if wrong := [token for token in ids if not 0 <= token < vocab_size or token in special]:
                raise SettingError(
                    f"a prefix holds token {wrong[0]}; give ids below {vocab_size} that are not special."
                )
            if most is not None and len(ids) >= most:
                raise SettingError(f"a prefix of {len(ids)} tokens leaves no room in an output of {most}; shorten it.")
