"""Tables of negatives, the sources that mine them (one file a kind), and filters against false negatives."""

NOT_KINDS = ("filters", "snapshot", "source", "table")
