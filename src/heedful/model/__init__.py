"""ids -> hidden states -> logits. Reads like the paper; knows no file, vocabulary, rank or loss.

One legend for the shapes of the whole package:

    B batch    S source length    T target length    D d_model    H heads    d width of a head    F d_ff
    V vocabulary    W beam width    R rows of a search, B * W

Batches come first, heads are `(B, H, T, d)`, sequences are padded on the right, and masks say what may be attended to.
"""
