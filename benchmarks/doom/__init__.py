"""Doom: game scenes rendered by the package vizdoom, with the engine's own boxes, in PASCAL VOC's layout."""

from doom.folder import TEST_MAPS, TRAIN_MAPS, render_doom
from doom.scene import CLASSES

__all__ = ["CLASSES", "TEST_MAPS", "TRAIN_MAPS", "render_doom"]
