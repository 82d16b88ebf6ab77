"""Readers of the tools' outputs: text and JSON to one plain shape, without judgement."""
