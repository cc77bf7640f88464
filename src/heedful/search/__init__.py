"""Next-token distributions -> hypotheses: beam search, greedy (a beam of one), sampling, constraints, ensembles.

Read `next_token` first: it is all that search knows of a model; text, files and weights are unknown here. The names
below need no torch: they describe a search and its result. `beam` and `sample` compute it.
"""

from heedful.search.hypothesis import Hypothesis, length_penalty
from heedful.search.lexical_constraints import LexicalConstraint, RequiredPhrase
from heedful.search.next_token import NextToken, SearchCache
from heedful.search.observer import Observer
from heedful.search.options import Constraint, SearchOptions
from heedful.search.request import SearchRequest
from heedful.search.row_constraint import RowConstraint

__all__ = [
    "Constraint",
    "Hypothesis",
    "LexicalConstraint",
    "NextToken",
    "Observer",
    "RequiredPhrase",
    "RowConstraint",
    "SearchCache",
    "SearchOptions",
    "SearchRequest",
    "length_penalty",
]
