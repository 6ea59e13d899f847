"""Does the detector name the right one? Antagonists are started and stopped beside a service at
random, decoys come and go on their own, and what the strategy ``interference`` says is compared
with the truth.

Collector, store and strategy are those of the daemon, in one process, a turn each second. Beside it
runs the rule of CPI2 on the same windows: where a CPU counts no cycles, a victim's waiting by its
running stands for its CPI. Both learn as many windows as they need before the first antagonist.

A decoy shares the resource and does no harm. That is checked first, by the service's own latency;
one that slows it down takes no part.
"""
