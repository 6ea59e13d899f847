"""The proto mirrors the model, the stubs mirror the proto, and views survive the journey."""

from __future__ import annotations

import re
import subprocess
import sys
import types
import typing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.admin import (
    blame,
    devices,
    prediction,
    ranges,
    runtime,
    strategies,
    undo,
    wire,
)
from koordlet.admin.model import configuration, doctor, events, status, usage
from koordlet.admin.pb import admin_pb2 as pb
from koordlet.decision.record import Record
from koordlet.decision.snapshot import Capability, Fault
from koordlet.decision.strategy import Action, HookRow, Need
from koordlet.decision.why import Input, Why
from tests.admin.fake_daemon import FakeDaemon

ROOT = Path(__file__).parent.parent.parent
VIEW_MODULES = (
    blame,
    configuration,
    devices,
    doctor,
    events,
    prediction,
    ranges,
    runtime,
    status,
    strategies,
    undo,
    usage,
)
VIEWS = [
    value
    for module in VIEW_MODULES
    for value in vars(module).values()
    if isinstance(value, type)
    and issubclass(value, msgspec.Struct)
    and value.__module__ == module.__name__
] + [Action, Capability, Fault, HookRow, Input, Need, Record, Why]
SCALARS = {str: 9, float: 1, bool: 8}  # FieldDescriptor.TYPE_*
INTEGERS = {3, 4}  # int64, uint64
# What the proto determines in each stub; the rest depends on the version of the generator.
STUBS = {
    "admin_pb2.py": r"AddSerializedFile\(.*",
    "admin_pb2_grpc.py": r"(/koordlet\.admin\.v1\.Admin/\w+|channel\.\w+|admin__pb2\.\w+)",
}


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_every_field_is_in_the_proto_with_its_type(view: type[msgspec.Struct]) -> None:
    message = getattr(pb, view.__name__).DESCRIPTOR
    fields = msgspec.structs.fields(view)
    assert [f.name for f in fields if f.name not in message.fields_by_name] == []
    assert len(fields) == len(message.fields)
    for field in fields:
        wired = message.fields_by_name[field.name]
        if wired.message_type is not None and wired.message_type.name == "Value":
            continue
        union = typing.get_origin(field.type) in (types.UnionType, typing.Union)
        assert union == (wired.has_presence and "optional" in _syntax(wired)), field.name
        inner = next(a for a in typing.get_args(field.type) if a) if union else field.type
        if typing.get_origin(inner) is tuple:
            assert wired.is_repeated
            inner = typing.get_args(inner)[0]
        if inner is int:
            assert wired.type in INTEGERS, field.name
        elif inner in SCALARS or (isinstance(inner, type) and issubclass(inner, str)):
            assert wired.type == SCALARS.get(inner, SCALARS[str]), field.name
        else:
            assert wired.message_type is not None, field.name


def _syntax(field: typing.Any) -> str:
    oneof = field.containing_oneof
    return "optional" if oneof is not None and oneof.name == f"_{field.name}" else ""


def test_whole_answers_survive_the_journey() -> None:
    daemon = FakeDaemon()
    for view in (
        daemon.status(),
        daemon.top()(),
        daemon.explain("node", 9)(),
        daemon.query("pod_cpu_usage", {}, 30.0, "avg")(),
        daemon.doctor()(),
        daemon.restore(dry_run=True),
        daemon.restore(dry_run=False),
        daemon.pause((), (), for_s=None, reason="", by=""),
        daemon.resume((), (), by=""),
        daemon.config(),
        daemon.reload(),
        daemon.hooks("shop/web-0"),
        daemon.nri(),
        daemon.devices(),
        daemon.predict("", 0.0)(),
        daemon.predict("shop/web-0", 60.0)(),
    ):
        message = wire.to_message(getattr(pb, type(view).__name__)(), view)
        parsed = type(message).FromString(message.SerializeToString())
        assert wire.from_message(parsed, type(view)) == view


@given(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.just(0)
    )
)
def test_any_input_value_survives(value: int | float | str | bool | None) -> None:
    sent = Input(name="x", value=value)
    got = wire.from_message(wire.to_message(pb.Input(), sent), Input)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        assert got.value == float(value)
    else:
        assert (type(got.value), got.value) == (type(value), value)


def test_a_cgroup_name_that_is_no_utf8_is_escaped() -> None:
    pod = msgspec.structs.replace(FakeDaemon().pods()()[0], cgroup="kubepods/pod\udcff")
    message = wire.to_message(pb.PodView(), pod)
    assert message.cgroup == "kubepods/pod\\xff"


def test_committed_stubs_are_what_the_proto_generates(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "proto.py"), str(tmp_path)], check=True, cwd=ROOT
    )
    for name, marks in STUBS.items():
        fresh = (tmp_path / "koordlet/admin/pb" / name).read_text()
        committed = (ROOT / "koordlet/admin/pb" / name).read_text()
        assert re.findall(marks, fresh), name
        assert re.findall(marks, fresh) == re.findall(marks, committed), (
            f"{name} differs from proto/: run `make proto`"
        )
