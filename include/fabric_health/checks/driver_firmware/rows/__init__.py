"""Rows of one node's evidence: each module reads the commands it needs through the parsers and merges their answers."""
