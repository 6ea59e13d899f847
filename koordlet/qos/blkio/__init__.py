"""Block I/O QoS: limits, weights and the cost model of disks."""
