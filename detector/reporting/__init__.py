"""A self-contained HTML report of a run: SVG charts, pictures as data URIs, one script for its sliders."""
