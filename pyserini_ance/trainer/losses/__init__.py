"""Losses: scores, labels and a mask in, one value an anchor out."""

NOT_KINDS = ("base",)
SHARED_FILES = dict.fromkeys(("hinge", "lambdarank", "margin_mse", "ranknet"), "pairwise")
SHARED_FILES |= dict.fromkeys(("lse_pair", "nll"), "nll") | dict.fromkeys(("bce", "soft_bce"), "bce")
