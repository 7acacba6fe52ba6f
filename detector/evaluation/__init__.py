"""How good the boxes are: average precision, CorLoc, tables and pictures."""
