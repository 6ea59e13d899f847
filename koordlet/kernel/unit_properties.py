"""Properties of systemd's units that stand for files of their cgroups, by D-Bus
(``org.freedesktop.systemd1(5)``). Calls block: they are for a thread beside the event loop."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from koordlet.kernel.units import not_running

if TYPE_CHECKING:  # loaded where a slice is told something
    from jeepney.io.blocking import DBusConnection

    from koordlet.kernel.host import Host

INFINITY = 2**64 - 1
"""No limit, in all of them."""
WITHIN_S = 2.0
"""Seconds that systemd has for one answer; a reload of hundreds of units takes longer."""

_MOST_TEXT = 200
_BUS = "org.freedesktop.systemd1"
_MANAGER = "/org/freedesktop/systemd1"
_INTERFACE_OF = {
    suffix: f"{_BUS}.{suffix.capitalize()}"
    for suffix in ("slice", "service", "scope", "socket", "mount", "swap")
}
SYSTEM_BUS = "/run/dbus/system_bus_socket"


def missing(host: Host) -> str:
    """Return why no unit can be told anything here; empty where it can."""
    if why := not_running(host):
        return why
    return "" if host.exists(SYSTEM_BUS) else f"no system bus ({SYSTEM_BUS} is not there)"


class UnitProperties(Protocol):
    """Raises OSError, with the unit for a file name, for all that may go wrong; FileNotFoundError
    where systemd has no such unit, and only then."""

    def get(self, unit: str, names: Sequence[str]) -> dict[str, int]:
        """Values that systemd knows, whatever the cgroup's files hold."""
        ...

    def set(self, unit: str, values: Mapping[str, int]) -> None:
        """Set until the next boot, or until the unit ends. systemd writes its cgroup's files."""
        ...

    def close(self) -> None: ...


class BusUnitProperties:
    """``UnitProperties`` of the system's manager. It connects when first asked, and anew after an
    error."""

    def __init__(self) -> None:
        self._connection: DBusConnection | None = None

    def get(self, unit: str, names: Sequence[str]) -> dict[str, int]:
        (path,) = self._call(unit, _MANAGER, f"{_BUS}.Manager", "LoadUnit", "s", (unit,), "o")
        interface = _INTERFACE_OF[unit.rpartition(".")[2]]
        found = {}
        for name in names:
            words = (interface, name)
            properties = "org.freedesktop.DBus.Properties"
            ((kind, value),) = self._call(unit, path, properties, "Get", "ss", words, "v")
            if kind != "t":
                raise OSError(errno.EPROTO, f"{name} is of type {kind}, not t", unit)
            found[name] = value
        return found

    def set(self, unit: str, values: Mapping[str, int]) -> None:
        properties = [(name, ("t", value)) for name, value in values.items()]
        words = (unit, True, properties)
        self._call(unit, _MANAGER, f"{_BUS}.Manager", "SetUnitProperties", "sba(sv)", words, "")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(
        self,
        unit: str,
        path: str,
        interface: str,
        method: str,
        signature: str,
        words: Any,
        expected: str,
    ) -> Any:
        """``expected``: signature of the answer."""
        from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call

        try:
            if self._connection is None:
                self._connection = _connected()
            address = DBusAddress(path, bus_name=_BUS, interface=interface)
            message = new_method_call(address, method, signature, words)
            answer = self._connection.send_and_get_reply(message, timeout=WITHIN_S)
        except TimeoutError:
            self.close()
            raise OSError(errno.ETIMEDOUT, f"no answer within {WITHIN_S:g} s", unit) from None
        except OSError as error:
            self.close()
            text = f"D-Bus: {error.strerror or error}"
            # No bus is not "no such unit".
            code = error.errno if error.errno != errno.ENOENT else errno.ENOTCONN
            raise OSError(code or errno.EIO, text, unit) from error
        except Exception as error:  # the library's own, for a bus that speaks otherwise
            self.close()
            raise OSError(errno.EPROTO, f"D-Bus: {type(error).__name__}: {error}", unit) from error
        if answer.header.message_type is MessageType.error:
            if answer.header.fields.get(HeaderFields.error_name) == f"{_BUS}.NoSuchUnit":
                raise FileNotFoundError(errno.ENOENT, "systemd knows no such unit", unit)
            text = " ".join(str(each) for each in answer.body) or "an error without a text"
            raise OSError(errno.EINVAL, f"systemd: {text[:_MOST_TEXT]}", unit)
        if answer.header.fields.get(HeaderFields.signature, "") != expected:
            raise OSError(errno.EPROTO, f"D-Bus: no such answer to {method} is known", unit)
        return answer.body


def _connected() -> DBusConnection:
    from jeepney.bus import get_bus
    from jeepney.io.blocking import DBusConnection, prep_socket

    bus = prep_socket(get_bus("SYSTEM"), timeout=WITHIN_S)
    # The library waits without end for the answer to its first message.
    impatience = threading.Timer(WITHIN_S, bus.shutdown, (socket.SHUT_RDWR,))
    impatience.start()
    try:
        return DBusConnection(bus)
    except Exception:
        bus.close()
        raise
    finally:
        impatience.cancel()
