"""Evaluation: average precision, CorLoc, error types, tables and pictures."""
