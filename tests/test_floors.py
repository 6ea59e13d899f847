"""A room imports rooms on lower floors only; qos and hooks import protocol and decision alone; the
companion imports protocol, kube, serving and drawing of koordlet alone."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "koordlet"
COMPANION = ROOT / "koord_scheduler"

FLOOR = {
    "protocol": 0,
    "wire": 0,
    "drawing": 0,
    "decision": 1,
    "kernel": 2,
    "kube": 2,
    "serving": 2,
    "tsdb": 2,
    "prediction": 2,
    "state": 3,
    "actuator": 3,
    "pause": 4,
    "inputs": 4,
    "collectors": 4,
    "qos": 4,
    "hooks": 4,
    "nri": 5,
    "runtimeproxy": 5,
    "cluster": 5,
    "hookserver": 5,
    "report": 5,
    "admin": 5,
    "config": 5,
    "diagnosis": 6,
    "engine": 6,
    "views": 7,
    "history": 7,
    "replay": 7,
    "daemon": 8,
    "demo": 9,
    "cli": 10,
}
COMPANION_FLOOR = {
    "model": 1,
    "overcommit": 2,
    "place": 2,
    "share": 2,
    "balance": 3,
    "plan": 3,
    "recommend": 2,
    "admission": 2,
    "kube": 4,
    "webhook": 4,
    "sinks": 4,
    "services": 5,
    "daemon": 6,
    "cli": 7,
}
COMPANION_PURE = {room for room, floor in COMPANION_FLOOR.items() if floor <= 3}
TAKEN_FROM_KOORDLET = {"protocol", "kube", "serving", "drawing"}
PURE = {"protocol", "decision", "prediction", "qos", "hooks"}
IMPURE_MODULES = {"os", "io", "time", "socket", "subprocess", "asyncio", "threading", "pathlib"}


def _imports(path: Path) -> set[tuple[int, str]]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found.add((node.lineno, node.module or ""))
            if node.module == "koordlet":
                found.update((node.lineno, f"koordlet.{alias.name}") for alias in node.names)
    return found


def _files() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE and "pb" not in p.parts)


@pytest.mark.parametrize("path", _files(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    for line, module in _imports(path):
        parts = module.split(".")
        if room in PURE:
            assert parts[0] not in IMPURE_MODULES, f"{path}:{line}: {room} is pure, not {module}"
        if parts[0] != "koordlet" or len(parts) < 2 or parts[1] == "__version__":
            continue
        other = parts[1]
        if other == room:
            continue
        assert FLOOR[other] < FLOOR[room], f"{path}:{line}: {room} must not import {other}"
        if room in {"qos", "hooks"}:
            assert other in {"protocol", "decision"}, f"{path}:{line}: {room} imports {other}"


@pytest.mark.parametrize(
    "path", sorted(COMPANION.glob("*/**/*.py")), ids=lambda p: str(p.relative_to(COMPANION))
)
def test_imports_of_the_companion_go_down(path: Path) -> None:
    room = path.relative_to(COMPANION).parts[0]
    for line, module in _imports(path):
        package, _, inside = module.partition(".")
        other = inside.partition(".")[0]
        where = f"{path}:{line}: {room}"
        if room in COMPANION_PURE:
            assert package not in IMPURE_MODULES, f"{where} is pure, not {module}"
            assert module.split(".")[:2] != ["koordlet", "kube"], f"{where} is pure, not {module}"
        if package == "koordlet" and other not in {"", "__version__"}:
            assert other in TAKEN_FROM_KOORDLET, f"{where} imports {module}"
        if package == "koord_scheduler" and other not in {"", "__version__", room}:
            assert COMPANION_FLOOR[other] < COMPANION_FLOOR[room], f"{where} imports {other}"


@pytest.mark.parametrize(
    ("package", "floors"),
    [(PACKAGE, FLOOR), (COMPANION, COMPANION_FLOOR)],
    ids=["koordlet", "companion"],
)
def test_every_room_has_a_floor(package: Path, floors: dict[str, int]) -> None:
    rooms = {p.name for p in package.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert rooms == set(floors)


@pytest.mark.parametrize("root", [PACKAGE, COMPANION, ROOT / "tests"], ids=lambda p: p.name)
def test_no_room_is_crowded(root: Path) -> None:
    """A room of more than 25 files is divided into rooms of its own."""
    rooms = {path.parent for path in root.rglob("*.py")}
    counts = {str(room.relative_to(root)): len(list(room.glob("*.py"))) for room in rooms}
    assert {room: count for room, count in counts.items() if count > 26} == {}  # with __init__.py


def test_every_package_is_installed() -> None:
    pyproject = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
    setuptools = pyproject["tool"]["setuptools"]
    packages = {
        ".".join((name, *path.parent.relative_to(root).parts))
        for name, directory in setuptools["package-dir"].items()
        for root in (PACKAGE.parent / directory,)
        for path in root.rglob("__init__.py")
    }
    assert packages == set(setuptools["packages"])
