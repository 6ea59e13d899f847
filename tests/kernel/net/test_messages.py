"""pyroute2 is loaded with the first socket of netlink, in parts, and harms nobody who wants all."""

from __future__ import annotations

import subprocess
import sys

_IMPORT_ALL = """
import importlib, pkgutil, sys
import koordlet
for module in pkgutil.walk_packages(koordlet.__path__, "koordlet."):
    if module.name not in ("koordlet.__main__", "koordlet.kernel.net.messages"):
        importlib.import_module(module.name)
print(*(name for name in sys.modules if name.partition(".")[0] == "pyroute2"))
"""

_OPEN = """
import sys
def started(event, arguments):
    if event == "subprocess.Popen":
        print("started", arguments[1])
sys.addaudithook(started)
before = set(sys.modules)
from koordlet.kernel.net.tc import TrafficControl
TrafficControl().close()
loaded = set(sys.modules) - before
print("pyroute2.netlink.rtnl.tcmsg" in loaded, sorted(loaded & {
    "pyroute2", "pyroute2.ndb", "pyroute2.iproute", "sqlite3", "unittest"
}))
import pyroute2
with pyroute2.IPRoute() as route:
    print(sorted(link.get_attr("IFLA_IFNAME") == "lo" for link in route.get_links())[-1])
"""


def test_no_module_loads_pyroute2_by_being_imported() -> None:
    """So neither the daemon does at its start, nor a command."""
    assert _lines(_IMPORT_ALL) == [""]


def test_a_socket_loads_its_messages_alone_and_all_of_it_can_be_loaded_later() -> None:
    """The library's own ``__init__`` imports a database, a test framework and more; before 0.9.7
    its configuration ran programs."""
    assert _lines(_OPEN) == ["True []", "True"]


def _lines(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
