"""The few hot operations, each with a plain body that reads like the paper and fast bodies that tests hold equal to it.

Nothing here has parameters or knows a model. `precision`, `processor`, `quantise`, `tables` and `threads` do without
torch.
"""
