"""Initial embeddings: from the corpus (LSA) or from pretrained word vectors."""
