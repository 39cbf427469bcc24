"""Texts to tensors: tokenizers, vocabularies, word vectors and batches."""
