"""Bytes to named tensors; knows no model."""
