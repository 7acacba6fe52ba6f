"""Self-training: a Faster R-CNN learns from the boxes that a weak detector finds."""
