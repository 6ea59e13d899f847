"""systemd's notification protocol (sd_notify(3)): one datagram per message."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Tells the service manager our state. Without ``NOTIFY_SOCKET`` every call does nothing.

    ``watchdog_s``: the manager ends us when it hears nothing for so long; None = it does not.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the abstract namespace.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
        micros = environ.get("WATCHDOG_USEC", "")
        for_us = environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self.watchdog_s = (int(micros) / 1e6 or None) if micros.isdigit() and for_us else None

    def send(self, *assignments: str) -> None:
        """``send("READY=1", "STATUS=...")``. A manager that does not listen is no error of ours."""
        if self._socket is None:
            return
        try:
            self._socket.sendto("\n".join(assignments).encode(), self._address)
        except OSError:
            # Full queue or a manager being re-executed: the next message will do.
            return

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
