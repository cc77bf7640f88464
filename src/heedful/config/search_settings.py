"""`search.*`: defaults of decoding."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from heedful.config.section import Section


class SearchSettings(Section):
    """Defaults of decoding, saved in the model folder."""

    beam: Annotated[int, Field(ge=1, le=1000)] = Field(4, description="Beam size; 1 is greedy search.")
    length_penalty: float = Field(
        0.6, ge=0, le=10, description="Length penalty α (GNMT): scores are divided by ((5 + length) / 6) ** α."
    )
    length_penalty_form: Literal["gnmt", "power"] = Field(
        "gnmt", description="The formula of the length penalty: GNMT's, or length ** α (power), as transformers has it."
    )
    early_stopping: Literal["n-best", "beam", "first"] = Field(
        "n-best",
        description="A search ends when no hypothesis can reach the n best (n-best), or the worst of as many finished"
        " ones as the beam is wide (beam), or when so many are finished (first). The last two are False and True of"
        " transformers.",
    )
    max_extra: Annotated[int, Field(ge=0)] = Field(
        50, description="Maximum output length: source length plus this many tokens (the paper)."
    )
    max_length: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Maximum number of output tokens, eos included; derived from the source if not set."
    )
    min_length: Annotated[int, Field(ge=0)] = Field(0, description="Minimum number of output tokens, eos not included.")
    no_repeat_ngram: Annotated[int, Field(ge=0)] = Field(
        0, description="No n-gram of this length occurs twice in an output (Paulus et al., 2018); 0 allows all."
    )
    first_token: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Id of the token that every output begins with, such as BART's start token."
    )
    loop_guard: bool = Field(
        True,
        description="Search a sentence again if its output repeats an n-gram four times in a row or more, and its"
        " source does not. Other outputs stay the same.",
    )

    @model_validator(mode="after")
    def _lengths_fit(self) -> Self:
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(
                f"min_length ({self.min_length}) is above max_length ({self.max_length});"
                " lower min_length or raise max_length"
            )
        return self
