"""Next-token distributions -> hypotheses: beam search, greedy (a beam of one), sampling, constraints, ensembles.

Read `next_token` first: it is all that search knows of a model. Text, files and weights are somebody else's.
"""

from heedful.search.beam import beam_search, beam_steps
from heedful.search.ensemble import Ensemble
from heedful.search.hypothesis import Hypothesis, length_penalty
from heedful.search.next_token import Cache, NextToken
from heedful.search.observer import Observer
from heedful.search.options import Constraint, Options
from heedful.search.sample import sample

__all__ = [
    "Cache",
    "Constraint",
    "Ensemble",
    "Hypothesis",
    "NextToken",
    "Observer",
    "Options",
    "beam_search",
    "beam_steps",
    "length_penalty",
    "sample",
]
