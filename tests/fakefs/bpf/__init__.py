"""Our programs in the kernel, and hardware counters, as a test wants them to count."""
