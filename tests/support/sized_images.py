"""A data set of sizes alone."""


class SizedImages:
    """What proposals ask of a data set: {image id: (height, width)}."""

    def __init__(self, sizes):
        self.image_ids, self.sizes = tuple(sizes), tuple(sizes.values())

    def image_size(self, index):
        return self.sizes[index]
