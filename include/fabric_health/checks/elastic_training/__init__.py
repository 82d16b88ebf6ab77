"""Elastic training: does training go on after a lost worker, from where, and how soon."""
