"""The machines of ``tests/daemon``."""

from tests.daemon.conftest import make_world

__all__ = ["make_world"]
