"""Readers of the formats that tools and programs of this check write. Each returns None, or what is wrong."""
