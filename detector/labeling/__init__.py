"""Boxes for a person to correct, which images to box next, and what comes back."""
