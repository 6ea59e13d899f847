"""``koord-scheduler config check``: files of configuration, by the readers that ``run`` has."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from koord_scheduler.admission.config_map import validate_config
from koord_scheduler.admission.words import AdmissionError
from koord_scheduler.balance.configuration import make, read_configuration
from koord_scheduler.cli.output import clean, emit
from koord_scheduler.daemon.files import FileError, parse_documents, read_documents
from koord_scheduler.daemon.scheduler.setup import SetupError, read_setup
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.overcommit.configuration import KEY_OF_FIELD, load

_MOST_DOCUMENTS = 64


class Finding(msgspec.Struct, frozen=True):
    """``kind``: what it was taken for. ``problem``: field and reason; empty where all is well."""

    file: str
    kind: str
    problem: str = ""


def main(args: argparse.Namespace) -> int:
    """1 where something would be refused."""
    found = [each for path in args.files for each in _file(path)]
    emit(found, args.output, lambda: map(_line, found))
    return 1 if any(each.problem for each in found) else 0


def _line(each: Finding) -> str:
    return clean(f"{each.file}: {each.kind}: {each.problem or 'ok'}")


def _file(path: str) -> Iterator[Finding]:
    try:
        documents = [each for each in read_documents(path) if each is not None]
    except FileError as error:
        yield Finding(path, "file", str(error).removeprefix(f"{path}: "))
        return
    if not documents or len(documents) > _MOST_DOCUMENTS:
        text = f"{len(documents)} documents, where 1 to {_MOST_DOCUMENTS} are expected"
        yield Finding(path, "file", text)
    for each in documents[:_MOST_DOCUMENTS]:
        yield from _document(path, each)


def _document(path: str, tree: Any) -> Iterator[Finding]:
    kind = _kind(tree)
    if kind in _CHECKS:
        yield _checked(path, kind, tree)
    elif kind == "ConfigMap" and isinstance(tree.get("data"), Mapping):
        yield from _config_map(path, tree["data"])
    elif isinstance(tree, Mapping) and tree.keys() & set(KEY_OF_FIELD.values()):
        yield _slo(path, tree)
    else:
        known = f"{', '.join(_CHECKS)} or a ConfigMap with data"
        yield Finding(path, kind, f"kind: must be {known}")


def _kind(tree: Any) -> str:
    return str((tree.get("kind") if isinstance(tree, Mapping) else None) or "file")


def _config_map(path: str, data: Mapping[Any, Any]) -> Iterator[Finding]:
    if data.keys() & set(KEY_OF_FIELD.values()):
        yield _slo(path, data)
        return
    for key, text in data.items():
        where = f"{path}, data[{key}]"
        try:
            documents = parse_documents(where, str(text).encode())
        except FileError as error:
            yield Finding(where, "file", str(error).removeprefix(f"{where}: "))
            continue
        for each in documents[:_MOST_DOCUMENTS]:
            # No ConfigMap within a ConfigMap: each level is looked at once.
            kind = _kind(each)
            if kind in _CHECKS:
                yield _checked(where, kind, each)
            else:
                yield Finding(where, kind, f"kind: must be {' or '.join(_CHECKS)}")


def _slo(path: str, data: Mapping[Any, Any]) -> Finding:
    kind = "slo-controller-config"
    texts = {}
    for key, text in data.items():
        if not isinstance(text, str):
            return Finding(path, kind, f"{key}: must be a text in JSON")
        texts[str(key)] = text
    problems = [f"{e.key}: {e.message}" for e in load(texts, None).outcomes if e.refused]
    if not problems:
        try:
            validate_config(texts, None, {})
        except AdmissionError as error:
            problems.append(str(error))
    return Finding(path, kind, "; ".join(problems))


def _checked(path: str, kind: str, tree: Mapping[str, Any]) -> Finding:
    try:
        _CHECKS[kind](path, tree)
    except (SetupError, ArgumentError) as error:
        return Finding(path, kind, str(error).removeprefix(f"{path}: "))
    return Finding(path, kind)


def _descheduler(_: str, tree: Mapping[str, Any]) -> None:
    make(read_configuration(tree))


_CHECKS: dict[str, Callable[[str, Mapping[str, Any]], object]] = {
    "KubeSchedulerConfiguration": read_setup,
    "DeschedulerConfiguration": _descheduler,
}
