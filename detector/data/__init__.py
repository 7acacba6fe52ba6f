"""From files to batches: readers of data sets and proposals, transforms, loaders."""
