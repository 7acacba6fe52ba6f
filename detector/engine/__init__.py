"""Training and inference: loops over batches, checkpoints, schedules."""
