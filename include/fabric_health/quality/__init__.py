"""Data quality of the trend tables."""
