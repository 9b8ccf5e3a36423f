"""Tables of negatives, the sources that mine them (one file a kind), filters and teachers."""

NOT_KINDS = ("filters", "mined", "positives", "random_filling", "snapshot", "source", "table", "teachers")
