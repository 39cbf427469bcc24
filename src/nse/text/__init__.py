"""Strings to ids: tokens, trees, vocabulary, word vectors and batches."""
