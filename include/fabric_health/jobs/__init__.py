"""How a workload is run: one description, several backends. A result is judged from evidence alone."""
