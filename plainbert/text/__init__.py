"""Strings to ids and back; no model and no torch here."""
