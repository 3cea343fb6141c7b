"""Tensors in, tensors out: BERT, its heads, and what they accept and return."""
