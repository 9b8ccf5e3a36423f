"""Run directories: fixed names, checkpoints, generations of negatives, and the record of what happened."""
