"""ids -> hidden states -> logits. Reads like the paper; knows no file, vocabulary, rank or loss.

One legend for the shapes of the whole package:

    B batch    S source length    T target length    D d_model    H heads    d head width    F d_ff
    V vocabulary    W beam width    R rows of a decoder, B * W

The batch dimension comes first, heads are `(B, H, T, d)`, sequences are padded on the right, and masks are True where a
query may attend to a key.
"""
