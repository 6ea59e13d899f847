"""Hardware counters: of cgroups and of CPUs (``perf_event_open(2)``)."""
