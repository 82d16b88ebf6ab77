"""The page of a run: one self-contained HTML file that gives the answer first, and pages of the evidence behind it."""
