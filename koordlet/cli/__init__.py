"""The commands. Floor 8."""

from koordlet.cli.main import main

__all__ = ["main"]
