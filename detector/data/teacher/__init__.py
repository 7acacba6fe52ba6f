"""What a teacher found in the images: boxes and masks of a zero-shot model or of any other detector.

`files.py` knows the forms of files and folders, `entries.py` the ways to write one box, `masks.py` those of a
mask, `classes.py` the table of class names, and `read.py` fits all of it to the images of a data set.
"""

from detector.data.teacher.read import read_teacher, teacher_proposals

__all__ = ["read_teacher", "teacher_proposals"]
