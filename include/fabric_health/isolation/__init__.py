"""Which node, rail, leaf or path is slow, in as few tests as possible.

Tests are noisy measurements of groups of nodes, so the answer is a posterior and may be "undecided":

* ``fleet``: the nodes, their places in the fabric, and the components that can be at fault;
* ``state``: tests, measurements, the budget, and everything measured so far as JSON (a killed task resumes from it);
* ``belief``: how probable it is that each component is slow, given all measurements;
* ``planning``: ``plan(state)``, the tests of the next round;
* ``verdict``: ``verdict(state)``, what is blamed, with which confidence, and what stays undecided and why;
* ``session``: ``update(state, measurements)`` and ``run(state, runner, save)``.

Pure: no input or output but through the runner and ``save``. Only ``fleet`` and ``state`` are free of numpy.
"""
