"""What `detector init` finds in a folder of pictures: tags, boxes and splits, in whatever form."""
