"""Configuration files in YAML or JSON."""

from __future__ import annotations

from typing import Any

_MOST_BYTES = 1 << 20


class FileError(Exception):
    """The text names the file, the line where there is one, and what is wrong."""


def read_documents(path: str, most_bytes: int = _MOST_BYTES) -> list[Any]:
    """Documents of the file. Raises FileError, also where it is larger than ``most_bytes``."""
    try:
        with open(path, "rb") as file:
            raw = file.read(most_bytes + 1)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    return parse_documents(path, raw, most_bytes)


def parse_documents(where: str, raw: bytes, most_bytes: int = _MOST_BYTES) -> list[Any]:
    """As `read_documents`; ``where`` is what errors name."""
    import yaml  # 2 MiB, which a process without files does without

    if len(raw) > most_bytes:
        raise FileError(f"{where}: more than {most_bytes} bytes")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return list(yaml.load_all(raw, Loader=loader))
    except UnicodeDecodeError:
        raise FileError(f"{where}: is no text in UTF-8") from None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else ""
        raise FileError(f"{where}{line}: neither YAML nor JSON") from None


def read_document(path: str) -> Any:
    """The only document of the file; None where it is empty. Raises FileError."""
    found = read_documents(path)
    if len(found) > 1:
        raise FileError(f"{path}: {len(found)} documents, where one is expected")
    return found[0] if found else None
