"""A load on an S3 store, measured: ``python -m fabric_health.workloads.s3_bench``.

Several processes share the concurrent requests, each request is timed by itself, and one JSON object is printed. The
load has a place of its own (``s3-bench/<name>/`` in a bucket that holds nothing else) and removes what it wrote, also
when it is told to end. Access and secret key come from the environment, never from the command line.
"""
