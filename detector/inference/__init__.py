"""Inference: load a trained detector, predict, test and export."""
