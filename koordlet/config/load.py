"""``koordlet.toml`` to a checked configuration that knows where each value came from.

Nothing is remembered between two calls: a reload is a second ``load``, and a file that is
refused leaves the configuration of the first as it was.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from koordlet.config import applications, machine, rules
from koordlet.config.errors import ConfigError, ConfigErrors, Findings, in_file_order
from koordlet.config.lines import Lines, toml_lines
from koordlet.config.origins import Names, config_origins, slo_origins
from koordlet.config.schema import Config
from koordlet.config.slo_file import SloFile, read_bytes, read_slo_file
from koordlet.kernel.host import Host
from koordlet.protocol.decode import decode_partly, nearest
from koordlet.protocol.document import check_tree
from koordlet.protocol.errors import Problem, ProtocolError, Refused
from koordlet.protocol.merge import overlay
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.protocol.slo_defaults import DEFAULTS, effective
from koordlet.protocol.validate import validate


class Loaded(msgspec.Struct, frozen=True):
    """A configuration in force.

    ``slo`` is the effective NodeSLO: built-in defaults, ``slo.file`` (or the NodeSLO of a cluster,
    see ``cluster_slo``), then the inline keys, which are ``inline``.
    ``origins``: dotted key -> where its value came from (see ``origins``); keys of the NodeSLO
    begin with ``slo.``. ``files``: what was read, for ``fingerprint``. ``warnings``: what is in
    force and probably not meant.
    """

    file: str
    config: Config
    slo: NodeSLOSpec
    origins: Mapping[str, str]
    files: tuple[str, ...]
    warnings: tuple[ConfigError, ...] = ()
    inline: NodeSLOSpec = NodeSLOSpec()


def load(file: str, *, missing_ok: bool = False, host: Host | None = None) -> Loaded:
    """Read and check ``file``. Raises ConfigErrors with every fault.

    ``missing_ok``: without the file, the defaults are the configuration. ``host``: what this
    machine makes impossible is a fault too; without it only the files are looked at.
    """
    tree, lines = _parse(file, missing_ok)
    inline, own_slo = _split_slo(tree)
    config, problems = decode_partly(
        Config, {**tree, "slo": own_slo}, strict=True, fold_case=False, path=""
    )
    inline_spec, slo_problems = decode_partly(NodeSLOSpec, inline, strict=True, path="slo")
    # From the tree, so that its faults are found together with those of the other keys.
    slo_file = _beside(file, own_slo.get("file") if isinstance(own_slo, dict) else None)
    theirs = SloFile(slo_file)
    errors: list[ConfigError] = []
    if slo_file:
        try:
            theirs = read_slo_file(slo_file, config.node.labels)
        except ConfigErrors as found:
            errors += found.errors
    errors += theirs.errors
    # Without a readable file nobody knows what an inline key is laid over.
    layers = (inline_spec, theirs.spec) if errors else (_laid(theirs.spec, inline_spec),)
    refused = Refused((*problems, *slo_problems))
    locate = _Locator(file, lines, theirs)
    errors += map(locate.inline, _with_slo_names((*problems, *slo_problems)))
    errors += map(locate.inline, rules.problems(config, refused))
    for layer in layers:
        errors += map(locate.slo, validate(layer, "slo", refused))
    hosts = _laid(theirs.spec, inline_spec).host_applications or ()
    errors += map(locate.slo, applications.problems(config.applications, hosts, refused))
    warnings = [*map(locate.inline, rules.remarks(config))]
    warnings += map(locate.slo, applications.remarks(config.applications, hosts))
    if host is not None:
        errors += map(locate.inline, machine.problems(config, host))
        warnings += map(locate.inline, machine.remarks(config, host))
    if errors:
        raise ConfigErrors(errors, warnings)
    spec = effective(overlay(theirs.spec, inline_spec) or NodeSLOSpec())
    names = Names(os.path.basename(file), os.path.basename(slo_file), lines)
    origins = config_origins(config, names) | slo_origins(spec, inline_spec, theirs.spec, names)
    files = (file, slo_file) if slo_file else (file,)
    return Loaded(file, config, spec, origins, files, in_file_order(warnings), inline_spec)


def check(file: str, *, missing_ok: bool = False, host: Host | None = None) -> Findings:
    """Every fault and every warning that ``load`` finds; without errors it loads."""
    try:
        return Findings(warnings=load(file, missing_ok=missing_ok, host=host).warnings)
    except ConfigErrors as found:
        return Findings(found.errors, found.warnings)


def _laid(lower: NodeSLOSpec, upper: NodeSLOSpec) -> NodeSLOSpec:
    """Both over the defaults: two fields that contradict each other may come from two layers."""
    return overlay(overlay(DEFAULTS, lower), upper) or DEFAULTS


class _Locator(NamedTuple):
    """Where the key of a problem stands."""

    file: str
    lines: Lines
    theirs: SloFile

    def inline(self, found: Problem) -> ConfigError:
        line = self.lines.find(found.path)
        return ConfigError(self.file, found.path, found.message, line, found.nearest)

    def slo(self, found: Problem) -> ConfigError:
        """Of a key that may stand in either file."""
        if not self.theirs.file or self.lines.exact(found.path) is not None:
            return self.inline(found)
        path = found.path.removeprefix("slo.")
        if path == found.path:
            return self.inline(found)
        line = self.theirs.line_of(path)
        return ConfigError(self.theirs.file, path, found.message, line, found.nearest)


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
