"""One HTML page on a run that needs no other file: charts in SVG, pictures as data URIs, no script."""
