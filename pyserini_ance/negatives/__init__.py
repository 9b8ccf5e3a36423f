"""Negatives: tables of candidates, what makes them (one file a source), and the guards against false ones."""

NOT_KINDS = ("episode", "guards", "mixing", "snapshot", "source", "table")
