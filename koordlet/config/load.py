"""``koordlet.toml`` to a checked configuration that knows where each value came from.

Nothing is remembered between two calls: a reload is a second ``load``, and a file that is
refused leaves the configuration of the first as it was.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from koordlet.config import rules
from koordlet.config.errors import ConfigError, ConfigErrors
from koordlet.config.lines import Lines, toml_lines
from koordlet.config.origins import Names, config_origins, slo_origins
from koordlet.config.schema import Config
from koordlet.config.slo_file import read_bytes, read_document
from koordlet.protocol.configmap import load_slo
from koordlet.protocol.decode import decode, nearest
from koordlet.protocol.document import check_tree
from koordlet.protocol.errors import Problem, ProtocolError
from koordlet.protocol.merge import overlay
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.protocol.slo_defaults import DEFAULTS, effective
from koordlet.protocol.validate import validate


class Loaded(msgspec.Struct, frozen=True):
    """A configuration in force.

    ``slo`` is the effective NodeSLO: built-in defaults, ``slo.file``, then the inline keys.
    ``origins``: dotted key -> where its value came from (see ``origins``); keys of the NodeSLO
    begin with ``slo.``. ``files``: what was read, for ``fingerprint``.
    """

    file: str
    config: Config
    slo: NodeSLOSpec
    origins: Mapping[str, str]
    files: tuple[str, ...]


def load(file: str, *, missing_ok: bool = False) -> Loaded:
    """Read and check ``file``. Raises ConfigErrors with every fault.

    ``missing_ok``: without the file, the defaults are the configuration.
    """
    tree, lines = _parse(file, missing_ok)
    inline, own_slo = _split_slo(tree)
    errors: list[ConfigError] = []

    def refuse(found: Iterable[Problem]) -> None:
        errors.extend(
            ConfigError(file, p.path, p.message, lines.find(p.path), p.nearest) for p in found
        )

    config, inline_spec, theirs = Config(), NodeSLOSpec(), SloFile()
    try:
        config = decode(Config, {**tree, "slo": own_slo}, strict=True, fold_case=False, path="")
        refuse(rules.problems(config))
    except ProtocolError as error:
        refuse(_with_slo_names(error.problems))
    try:
        inline_spec = decode(NodeSLOSpec, inline, strict=True, path="slo")
    except ProtocolError as error:
        refuse(_with_slo_names(error.problems))
    # From the tree, so that its faults are found together with those of the other keys.
    slo_file = _beside(file, own_slo.get("file") if isinstance(own_slo, dict) else None)
    if slo_file:
        try:
            theirs = _read_slo_file(slo_file, config.node.labels)
        except ConfigErrors as found:
            errors.extend(found.errors)
    if not errors:
        # Two fields that contradict each other may come from two layers.
        for problem in validate(overlay(overlay(DEFAULTS, theirs.spec), inline_spec), "slo"):
            if slo_file and lines.exact(problem.path) is None:
                path = problem.path.removeprefix("slo.")
                line = theirs.line_of(path)
                errors.append(ConfigError(slo_file, path, problem.message, line))
            else:
                refuse([problem])
    if errors:
        raise ConfigErrors(errors)
    spec = effective(overlay(theirs.spec, inline_spec) or NodeSLOSpec())
    names = Names(os.path.basename(file), os.path.basename(slo_file), lines)
    origins = config_origins(config, names) | slo_origins(spec, inline_spec, theirs.spec, names)
    return Loaded(file, config, spec, origins, (file, slo_file) if slo_file else (file,))


def check(file: str) -> tuple[ConfigError, ...]:
    """Every fault of ``file``; empty when it may come into force."""
    try:
        load(file)
    except ConfigErrors as found:
        return found.errors
    return ()


def fingerprint(files: Iterable[str]) -> tuple[tuple[str, int, int, int] | None, ...]:
    """(path, mtime in ns, size, inode) of each file, None where it is not there: changes when a
    file is edited or replaced."""
    found: list[tuple[str, int, int, int] | None] = []
    for file in files:
        try:
            stat = os.stat(file)
            found.append((file, stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)


def _parse(file: str, missing_ok: bool) -> tuple[dict[str, Any], Lines]:
    if missing_ok and not os.path.exists(file):
        return {}, Lines({})
    try:
        text = read_bytes(file).decode()
        tree = tomllib.loads(text)
        check_tree(tree, "")
    except UnicodeDecodeError as error:
        raise ConfigErrors([ConfigError(file, "", f"byte {error.start} is not UTF-8")]) from None
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).rpartition(" (at ")
        line = re.match(r"line (\d+)", place)
        number = int(line[1]) if line else text.count("\n") + 1  # "at end of document"
        raise ConfigErrors([ConfigError(file, "", f"TOML error: {message}", number)]) from None
    except ProtocolError as error:
        raise ConfigErrors([ConfigError(file, error.path, error.message)]) from None
    except (RecursionError, ValueError) as error:
        # tomllib recurses into nested values, and int() refuses 5000 digits.
        message = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigErrors([ConfigError(file, "", f"TOML error: {message}")]) from None
    return tree, toml_lines(text)


_SLO_KEYS = tuple(field.encode_name for field in msgspec.structs.fields(NodeSLOSpec))
_SLO_KEYS_FOLDED = frozenset(key.lower() for key in _SLO_KEYS)


def _split_slo(tree: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """``[slo]`` holds keys of a NodeSLO and keys of ours: (theirs, ours)."""
    table = tree.get("slo", {})
    if not isinstance(table, dict):
        return {}, table
    theirs = {key: value for key, value in table.items() if key.lower() in _SLO_KEYS_FOLDED}
    return theirs, {key: value for key, value in table.items() if key not in theirs}


def _with_slo_names(found: Iterable[Problem]) -> Iterator[Problem]:
    """An unknown key directly in ``[slo]`` may be meant for the NodeSLO."""
    for problem in found:
        table, _, key = problem.path.rpartition(".")
        if table == "slo" and not problem.nearest:
            problem = msgspec.structs.replace(problem, nearest=nearest(key, _SLO_KEYS))
        yield problem


def _beside(file: str, path: Any) -> str:
    """``path`` as seen from the directory of ``file``; empty where there is none."""
    if not isinstance(path, str) or not path:
        return ""
    return os.path.join(os.path.dirname(os.path.abspath(file)), path)


def _no_lines() -> Lines:
    return Lines({})


class SloFile(NamedTuple):
    """What ``slo.file`` says, and what tells the lines of its keys."""

    spec: NodeSLOSpec = NodeSLOSpec()
    lines: Callable[[], Lines] = _no_lines

    def line_of(self, path: str) -> int | None:
        """Line of a key of the spec; None in a ConfigMap, where it stands inside a text."""
        found = self.lines()
        line = found.exact(f"$.spec.{path}")
        return found.exact(f"$.{path}") if line is None else line


def _read_slo_file(file: str, node_labels: Mapping[str, str]) -> SloFile:
    document, lines = read_document(file)
    try:
        return SloFile(load_slo(document, node_labels), lines)
    except ProtocolError as error:
        where = lines()
        raise ConfigErrors(
            ConfigError(file, p.path, p.message, where.find(p.path), p.nearest)
            for p in error.problems
        ) from None
