"""The daemon as a process: lifecycle, servers, reload. Floor 8."""
