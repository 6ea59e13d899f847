from tests.admin.conftest import served
from tests.cli.conftest import utc

__all__ = ["served", "utc"]
