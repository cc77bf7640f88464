"""Next-token distributions -> hypotheses: beam search, greedy (a beam of one), sampling, constraints, ensembles.

Read `next_token` first: it is all that search knows of a model. Text, files and weights are somebody else's. What is
here says how to search and what was found, and does without torch; the searches stand in `beam` and `sample`.
"""

from heedful.search.hypothesis import Hypothesis, length_penalty
from heedful.search.next_token import NextToken, SearchCache
from heedful.search.observer import Observer
from heedful.search.options import Constraint, SearchOptions
from heedful.search.request import SearchRequest

__all__ = [
    "Constraint",
    "Hypothesis",
    "NextToken",
    "Observer",
    "SearchCache",
    "SearchOptions",
    "SearchRequest",
    "length_penalty",
]
