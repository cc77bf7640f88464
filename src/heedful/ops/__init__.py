"""The hot operations, each with a plain PyTorch body that reads like the paper and fast bodies that tests hold equal.

Nothing here has parameters or knows a model. `precision`, `cpu`, `quantization`, `position_tables` and `threads` import
without torch.
"""
