"""Toybox: the embedded data set, drawn rather than downloaded, in the layout of PASCAL VOC."""

from detector.data.toybox.folder import CLASSES, draw_toybox

__all__ = ["CLASSES", "draw_toybox"]
