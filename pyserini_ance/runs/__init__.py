"""Run directories: fixed names, checkpoints, and the record of what happened."""
