"""The process: roles, leases, controllers."""
