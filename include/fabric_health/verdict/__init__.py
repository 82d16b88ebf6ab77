"""Did it hurt, where, and how sure are we: pure statistics over measurements, without input or output.

* ``outcome``: the words of a verdict, and what every layer returns;
* ``panel``: measurements of one metric as runs x launches x units;
* ``comparability``: may two measurements be compared, and which field says no;
* ``peers``, ``paired``, ``history``, ``quality``: the layers, each usable alone;
* ``fleet``: all units of a run against their own past and their peers: screen, confirm, decide;
* ``power``: what a comparison could have missed, and what would settle it;
* ``attribution``: which change separates the units that moved from those that did not;
* ``downstream``: which regression is the consequence of what: one cause is one piece of news;
* ``expected``: differences that somebody acknowledged, until a date.

What each decides, and how often it is wrong, is in ``docs/verdicts.md``.
"""
