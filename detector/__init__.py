"""Weakly supervised object detection: image labels in, boxes out."""

__version__ = "0.1.0"
