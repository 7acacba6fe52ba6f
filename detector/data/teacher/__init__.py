"""Reads the detections of a teacher: boxes and masks of a zero-shot model or of any other detector.

`files.py` reads files and folders, `entries.py` single boxes, `masks.py` masks and `classes.py` the table of
class names; `read.py` matches all of it to the images of a data set.
"""

from detector.data.teacher.read import read_teacher, teacher_proposals

__all__ = ["read_teacher", "teacher_proposals"]
