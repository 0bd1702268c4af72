"""The backends there are: a folder each, and a row of ``table``."""
