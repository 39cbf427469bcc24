"""Strings to ids: vocabulary and batches."""
