"""Answers to the show commands of the five platforms."""
