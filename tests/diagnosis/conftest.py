"""The time zone of ``tests/cli``."""

from tests.cli.conftest import utc

__all__ = ["utc"]
