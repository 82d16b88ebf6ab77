"""Rules of the driver and firmware audit, one group a file; each is a pure function from rows to findings."""
