from tests.cli.conftest import in_zone, utc

__all__ = ["in_zone", "utc"]
