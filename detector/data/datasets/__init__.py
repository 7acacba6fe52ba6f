"""Data sets: images with tags and, for evaluation, boxes, in the layouts of VOC and COCO or a table."""
