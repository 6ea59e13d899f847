"""What the scheduler reads of the API server and writes to it."""
