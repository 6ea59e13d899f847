"""What the fake kernel gives cgroups of CPU, memory and disks, and what it refuses."""
