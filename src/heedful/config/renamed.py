"""Old name -> new name of settings and values that were renamed before the first release.

An old name is an error that gives the new one; none is accepted.
"""

from __future__ import annotations

SETTINGS = {
    "data.labelled": "data.labeled",
    "data.store": "data.cache_dir",
    "data.valid_labelled": "data.valid_labeled",
    "model.halting": "model.act_halting",
    "model.recurrent_depth": "model.universal",
    "search.alpha": "search.length_penalty",
    "train.accumulate": "train.micro_batches",
    "train.average": "train.average_checkpoints",
    "train.block": "train.block_size",
    "train.consistency": "train.rdrop",
    "train.embeddings": "train.embedding_init",
    "train.engine": "train.backend",
    "train.family": "task",
    "train.freeze_vectors": "train.freeze_embeddings",
    "train.mask": "train.mask_prob",
    "train.negatives": "train.sampled_softmax",
    "train.optimiser": "train.optimizer",
    "train.smoothing": "train.label_smoothing_form",
    "train.split": "train.bpe_dropout",
    "train.vectors": "train.pretrained_embeddings",
}

VALUES = {
    ("model.attention", "kernel"): "linear",
    ("model.attention", "lowrank"): "linformer",
    ("model.decoder_attention", "kernel"): "linear",
    ("model.decoder_attention", "lowrank"): "linformer",
    ("train.embedding_init", "pairs"): "lsa",
}
