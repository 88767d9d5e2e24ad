"""Local training: what is minimised for each task, with which optimiser, over which batches."""
