"""Losses, one file each: scores, labels and a mask in, one value an anchor out."""

NOT_KINDS = ("base",)
