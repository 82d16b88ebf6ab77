"""Ports of a switch as it answers, one parser per platform: text in, readings and problems out."""
