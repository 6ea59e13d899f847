"""One file per collector: kernel to tsdb. Floor 4."""
