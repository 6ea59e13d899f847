"""The central companion, measured on simulated clusters."""
