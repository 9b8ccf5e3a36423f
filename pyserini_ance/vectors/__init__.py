"""Vectors of a collection: encoded into a store once, searched exactly."""
