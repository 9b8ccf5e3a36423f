"""Kinds of encoders, one file a family: how towers are built, loaded and saved."""
