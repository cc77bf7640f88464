"""One sentence to search: the unit that schedulers queue and backends compute."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.audio.log_mel import FeatureFrames
from heedful.search.lexical_constraints import LexicalConstraint
from heedful.search.options import SearchOptions


class SearchRequest(NamedTuple):
    """A source, the options of the search, forced target ids, the shortlist (the target ids allowed), and the phrases
    that the output must contain.

    The source is ids with eos, or the features of a recording; its length is that of the encoder memory.
    """

    source: list[int] | FeatureFrames
    options: SearchOptions
    prefix: tuple[int, ...] = ()
    shortlist: npt.NDArray[np.int32] | None = None
    phrases: LexicalConstraint | None = None
