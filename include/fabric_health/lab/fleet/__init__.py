"""What a fleet of GPU nodes would measure: documented laws, faults that cost bandwidth, results in nccl-tests' formats.

* ``laws``: bandwidth and time of a collective, and what each fault costs, as functions of plain numbers with sources;
* ``fabric``: nodes, NICs, racks and the switch ports behind them, of a site or of any number of nodes;
* ``costs``: the lab's active faults as losses of nodes and NICs;
* ``model``: ``Fleet``, which measures a group of nodes in one launch, or many runs at once;
* ``runner``: a fleet as the runner of an isolation;
* ``all_reduce_perf``: the program that stands in for nccl-tests in the lab (``options``, ``text``, ``document``);
* ``plot``: the picture in ``docs/lab.md``.

Nothing here is a measurement. Laws and constants are in ``docs/lab.md``, section "Fleet model".
"""
