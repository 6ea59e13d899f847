"""Whatever the files hold, only ConfigErrors come out."""

from __future__ import annotations

import random
import string
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from koordlet.config.load import check, load
from koordlet.config.origins import leaves
from koordlet.config.sample import sample
from koordlet.config.schema import Config
from koordlet.config.show import show, toml_text
from koordlet.protocol.slo_defaults import DEFAULTS

KEYS = [leaf.path for leaf in leaves(Config())]
KEYS += [leaf.path for leaf in leaves(DEFAULTS, "slo")]
KEYS += [f"applications[0].{key}".replace("[0]", "") for key in ("name", "qos", "cgroup")]

_values = st.recursive(
    st.booleans()
    | st.integers(-(10**25), 10**25)
    | st.floats()
    | st.text(st.characters(codec="utf-8"), max_size=10)
    | st.sampled_from(["1Gi", "5m", "0-3", "auto", "off", "unix:/x", "enforce", "LS", "\0"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(string.ascii_letters, max_size=6), inner, max_size=3)
    ),
    max_leaves=5,
)


def _toml(value: Any) -> str:
    from msgspec.inspect import AnyType

    if isinstance(value, float):
        return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(str(value), repr(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}" = {_toml(v)}' for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return toml_text(AnyType(), value)


fuzz = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(
    st.dictionaries(st.sampled_from(KEYS) | st.text(string.ascii_lowercase), _values, max_size=5)
)
@fuzz
def test_random_trees(tmp_path: Path, tree: dict[str, Any]) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text("\n".join(f"{key} = {_toml(value)}" for key, value in tree.items() if key))
    if not check(str(file)).errors:
        assert show(load(str(file)))


@given(st.binary(max_size=80), st.booleans())
@fuzz
def test_random_bytes_in_both_files(tmp_path: Path, data: bytes, as_json: bool) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_bytes(data)
    check(str(file))
    file.write_text('slo.file = "slo"')
    (tmp_path / "slo").write_bytes(b"{" * as_json + data)
    check(str(file))


@given(st.text(st.sampled_from("a:1-{}[]&*!|>\n '\"#,?%@~<"), max_size=60))
@fuzz
def test_yaml_like_text(tmp_path: Path, text: str) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text('slo.file = "slo"')
    (tmp_path / "slo").write_text(text)
    check(str(file))


def test_flipped_bytes_of_the_sample(tmp_path: Path) -> None:
    rng = random.Random(7)
    file = tmp_path / "koordlet.toml"
    good = b"\n".join(row for row in sample().encode().split(b"\n") if not row.startswith(b"# "))
    good = good.replace(b"\n#", b"\n")
    refused = 0
    for _ in range(150):
        data = bytearray(good)
        at = rng.randrange(len(data))
        data[at : at + 1] = rng.randbytes(rng.randint(0, 2))
        file.write_bytes(data)
        refused += bool(check(str(file)).errors)
    assert 0 < refused <= 150
