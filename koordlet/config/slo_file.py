"""The file ``slo.file`` points at: YAML or JSON to a plain tree, with the line of each key."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from koordlet.config.errors import ConfigError, ConfigErrors, unreadable
from koordlet.config.lines import Lines
from koordlet.protocol.configmap import load_slo_partly
from koordlet.protocol.document import build_object, check_tree, parse_json
from koordlet.protocol.errors import ProtocolError, join
from koordlet.protocol.limits import JSON_DEPTH
from koordlet.protocol.slo import NodeSLOSpec

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 4 << 20
# Aliases can make a small text into a huge tree.
MAX_NODES = 100_000

_PLAIN_TAGS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


def _no_lines() -> Lines:
    return Lines({})


class SloFile(NamedTuple):
    """What ``slo.file`` says, what is wrong with it, and what tells the lines of its keys. Without
    a name there is none."""

    file: str = ""
    spec: NodeSLOSpec = NodeSLOSpec()
    errors: tuple[ConfigError, ...] = ()
    lines: Callable[[], Lines] = _no_lines

    def line_of(self, path: str) -> int | None:
        """Line of a key of the spec; None in a ConfigMap, where it stands inside a text."""
        found = self.lines()
        line = found.exact(f"$.spec.{path}")
        return found.exact(f"$.{path}") if line is None else line


def read_slo_file(file: str, node_labels: Mapping[str, str]) -> SloFile:
    """Raises ConfigErrors for a file that cannot be read at all."""
    document, lines = read_document(file)
    spec, problems = load_slo_partly(document, node_labels)
    errors = tuple(
        ConfigError(file, p.path, p.message, lines().find(p.path), p.nearest) for p in problems
    )
    return SloFile(file, spec, errors, lines)


def read_document(file: str) -> tuple[Any, Callable[[], Lines]]:
    """The tree of a YAML or JSON file, and what tells the lines of its keys. Raises
    ConfigErrors."""
    data = read_bytes(file)
    try:
        if data.lstrip()[:1] == b"{":
            return parse_json(data), cache(partial(_json_lines, data.decode()))
        tree, lines = _parse_yaml(data.decode())
        return tree, lambda: lines
    except UnicodeDecodeError as error:
        raise ConfigErrors([ConfigError(file, "", f"byte {error.start} is not UTF-8")]) from None
    except ProtocolError as error:
        problem = error.problems[0]
        syntax = re.search(r"at line (\d+)", problem.message)
        line = int(syntax[1]) if syntax else None
        raise ConfigErrors([ConfigError(file, problem.path, problem.message, line)]) from None
    except _YamlError as error:
        raise ConfigErrors([ConfigError(file, "", str(error), error.line)]) from None


def read_bytes(file: str) -> bytes:
    """The content of a configuration file. Raises ConfigErrors."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ConfigErrors([ConfigError(file, "", "is not a regular file")])
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise unreadable(file, error) from None
    except ValueError as error:  # a zero byte in the path
        raise ConfigErrors([ConfigError(file, "", str(error))]) from None
    if len(data) > MAX_BYTES:
        raise ConfigErrors([ConfigError(file, "", f"larger than {MAX_BYTES} bytes")])
    return data


def _json_lines(text: str) -> Lines:
    """JSON is YAML but for tabs between tokens, and the YAML parser knows lines."""
    try:
        return _parse_yaml(text.replace("\t", " "))[1]
    except (_YamlError, ProtocolError):
        return Lines({})


class _YamlError(ValueError):
    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def _parse_yaml(text: str) -> tuple[Any, Lines]:
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            lines: dict[str, int] = {}
            tree = None if node is None else _Builder(loader, lines).build(node, "$", 0)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        raise _YamlError(f"YAML error: {error.problem or error.context}", line) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise _YamlError(f"YAML error: {str(error) or 'nested too deeply'}", None) from None
    check_tree(tree, "$")
    return tree, Lines(lines)


class _Builder:
    """YAML nodes to a plain tree, as JSON would give it: string keys, no tags, no aliases that
    blow up."""

    def __init__(self, loader: yaml.SafeLoader, lines: dict[str, int]) -> None:
        self._loader = loader
        self._lines = lines
        self._nodes = 0

    def build(self, node: yaml.Node, path: str, depth: int) -> Any:
        import yaml

        line = node.start_mark.line + 1
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > JSON_DEPTH:
            raise _YamlError(f"more than {MAX_NODES} values or {JSON_DEPTH} levels", line)
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN_TAGS:
            raise _YamlError(f"the tag {node.tag} has no meaning here", line)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(n, join(path, i), depth + 1) for i, n in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            pairs = []
            for key_node, value_node in node.value:
                key = self._key(key_node)
                where = join(path, key)
                self._lines.setdefault(where, key_node.start_mark.line + 1)
                pairs.append((key, self.build(value_node, where, depth + 1)))
            return build_object(pairs)
        try:
            return self._loader.construct_object(node)
        except ValueError as error:  # a date such as 2024-99-99, a number of 5000 digits
            raise _YamlError(f"bad value: {error}", line) from None

    def _key(self, node: yaml.Node) -> str:
        import yaml

        scalar = isinstance(node, yaml.ScalarNode)
        key = self._loader.construct_object(node) if scalar else None
        if not isinstance(key, str):
            raise _YamlError("a key must be text; quote it", node.start_mark.line + 1)
        return key
