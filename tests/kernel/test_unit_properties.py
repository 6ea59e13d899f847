"""Properties of units by D-Bus, from a bus that answers as systemd does, or not."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jeepney import HeaderFields, Message, new_error, new_method_return
from jeepney.low_level import Parser

from koordlet.kernel import unit_properties
from koordlet.kernel.unit_properties import INFINITY, BusUnitProperties

UNIT = "kubepods-besteffort.slice"
PATH = "/org/freedesktop/systemd1/unit/kubepods_2dbesteffort_2eslice"
QUOTA, MIN = "CPUQuotaPerSecUSec", "MemoryMin"
Answer = Callable[[Message], Message | bytes | None]


class Bus:
    """Bus and systemd in one. ``answer``: None for the usual one. ``heard``: method and body of
    each call."""

    def __init__(self, path: Path) -> None:
        self.known = {QUOTA: INFINITY, MIN: 0}
        self.answer: Answer | None = None
        self.heard: list[tuple[str, tuple[Any, ...]]] = []
        self.connections = 0
        self.is_hung = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            lines = connection.makefile("rb")
            while (line := lines.readline()) != b"BEGIN\r\n":
                if not line:
                    return
                connection.sendall(b"OK 0\r\n")
            parser = Parser()
            while data := lines.read1():
                for message in parser.feed(data):
                    reply = self._reply(message)
                    if reply is not None:
                        raw = reply if isinstance(reply, bytes) else reply.serialise(serial=1)
                        connection.sendall(raw)

    def _reply(self, message: Message) -> Message | bytes | None:
        method = message.header.fields[HeaderFields.member]
        if method == "Hello":
            if self.is_hung:
                return None
            return new_method_return(message, "s", (":1.1",))
        self.heard.append((method, message.body))
        if self.answer is not None:
            return self.answer(message)
        if method == "LoadUnit":
            return new_method_return(message, "o", (PATH,))
        if method == "Get":
            return new_method_return(message, "v", (("t", self.known[message.body[1]]),))
        self.known.update({name: value for name, (_, value) in message.body[2]})
        return new_method_return(message)


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    made = Bus(tmp_path / "bus")
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    yield made
    made.close()


@pytest.fixture
def properties() -> Iterator[BusUnitProperties]:
    made = BusUnitProperties()
    yield made
    made.close()


def test_values_are_read_and_set_on_one_connection(bus: Bus, properties: BusUnitProperties) -> None:
    assert properties.get(UNIT, (QUOTA, MIN)) == {QUOTA: INFINITY, MIN: 0}
    properties.set(UNIT, {QUOTA: 500_000, MIN: 1 << 20})
    assert properties.get(UNIT, (QUOTA, MIN)) == {QUOTA: 500_000, MIN: 1 << 20}
    assert bus.connections == 1 and bus.heard[0] == ("LoadUnit", (UNIT,))
    assert bus.heard[1] == ("Get", ("org.freedesktop.systemd1.Slice", QUOTA))
    wanted = [(QUOTA, ("t", 500_000)), (MIN, ("t", 1 << 20))]
    assert ("SetUnitProperties", (UNIT, True, wanted)) in bus.heard  # True: until the next boot


def refused(name: str, text: str) -> Answer:
    return lambda message: new_error(message, f"org.freedesktop.{name}", "s", (text,))


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (refused("systemd1.NoSuchUnit", "gone"), errno.ENOENT, "knows no such unit"),
        (refused("DBus.Error.AccessDenied", "no " * 999), errno.EINVAL, "systemd: no no"),
        (lambda m: new_method_return(m), errno.EPROTO, "LoadUnit"),
        (lambda m: new_method_return(m, "ss", ("a", "b")), errno.EPROTO, "LoadUnit"),
        (lambda m: new_method_return(m, "u", (7,)), errno.EPROTO, "D-Bus"),
        (lambda m: b"garbage" * 9, errno.EPROTO, "D-Bus"),
    ],
)
def test_whatever_goes_wrong_is_an_error_of_the_unit(
    bus: Bus, properties: BusUnitProperties, answer: Answer, code: int, text: str
) -> None:
    bus.answer = answer
    with pytest.raises(OSError, match=text) as caught:
        properties.get(UNIT, (QUOTA,))
    assert caught.value.errno == code and caught.value.filename == UNIT
    assert len(str(caught.value)) < 400
    bus.answer = None
    assert properties.get(UNIT, (QUOTA,)) == {QUOTA: INFINITY}


def test_a_property_of_another_type_is_no_number(bus: Bus, properties: BusUnitProperties) -> None:
    def text_of(message: Message) -> Message:
        is_get = message.header.fields[HeaderFields.member] == "Get"
        signature, body = ("v", (("s", "max"),)) if is_get else ("o", (PATH,))
        return new_method_return(message, signature, body)

    bus.answer = text_of
    with pytest.raises(OSError, match=f"{QUOTA} is of type s") as caught:
        properties.get(UNIT, (QUOTA,))
    assert caught.value.errno == errno.EPROTO


def test_a_busy_systemd_is_left_and_its_late_answer_is_nobodys(
    bus: Bus, properties: BusUnitProperties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_properties, "WITHIN_S", 0.2)
    bus.answer = lambda message: None
    with pytest.raises(OSError, match="no answer within") as caught:
        properties.get(UNIT, (QUOTA,))
    assert caught.value.errno == errno.ETIMEDOUT
    bus.answer = None
    monkeypatch.setattr(unit_properties, "WITHIN_S", 10.0)
    assert properties.get(UNIT, (QUOTA,)) == {QUOTA: INFINITY} and bus.connections == 2


def test_no_bus_is_an_error_of_the_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: BusUnitProperties
) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    with pytest.raises(OSError, match="D-Bus") as caught:
        properties.set(UNIT, {QUOTA: 1})
    assert not isinstance(caught.value, FileNotFoundError)


def test_a_bus_that_hangs_is_left(
    bus: Bus, properties: BusUnitProperties, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.is_hung = True
    monkeypatch.setattr(unit_properties, "WITHIN_S", 0.2)
    with pytest.raises(OSError, match="D-Bus"):
        properties.get(UNIT, (QUOTA,))
    bus.is_hung = False
    monkeypatch.setattr(unit_properties, "WITHIN_S", 10.0)
    assert properties.get(UNIT, (QUOTA,)) == {QUOTA: INFINITY}
