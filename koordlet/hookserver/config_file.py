"""The file by which a CRI proxy learns where our hook server is (docs/reference/hooks.md 4.4).

It stays when the daemon stops: under ``Fail`` the proxy shall refuse pods until koordlet is back,
under ``Ignore`` a call to a socket that is not there costs it nothing. Whoever switches the hook
server off calls ``remove_config``.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable

from koordlet.decision.strategy import Stage

FILE_NAME = "koordlet.json"
# Of use though no hook serves them: the first names the id of a container that was created, the
# others what ended.
_TELLING = frozenset(
    {
        Stage.PRE_START_CONTAINER,
        Stage.STOP_CONTAINER,
        Stage.STOP_POD_SANDBOX,
        Stage.UPDATE_POD,
    }
)


def advertised(served: Iterable[Stage]) -> tuple[str, ...]:
    """The stages at which a proxy shall ask, where hooks serve these."""
    wanted = {*served, *_TELLING} - {Stage.REMOVE_POD_SANDBOX}  # no part of CRI
    return tuple(str(stage) for stage in Stage if stage in wanted)


def config_text(endpoint: str, policy: str, stages: Iterable[str]) -> str:
    """``endpoint``: path of the hook server's socket. ``policy``: ``Fail`` or ``Ignore``.
    ``stages``: at which the proxy shall ask."""
    content = {
        "remote-endpoint": endpoint,
        "failure-policy": policy,
        "runtime-hooks": list(stages),
    }
    return json.dumps(content, indent="\t")


def write_config(path: str, endpoint: str, policy: str, stages: Iterable[str]) -> bool:
    """Whole or not at all; False where the file says so already. Raises OSError.

    A proxy looks at names ending in ``json`` alone, so it never sees the unfinished one.
    """
    text = config_text(endpoint, policy, stages)
    with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        if file.read() == text:
            return False
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    unfinished = f"{path}.new"
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        # An empty file after a power failure would end the reference's proxy.
        os.fsync(descriptor)
    os.rename(unfinished, path)
    return True


def remove_config(path: str, endpoint: str) -> bool:
    """True where the file named our socket and is gone now. Raises OSError."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (FileNotFoundError, ValueError):
        return False
    if not isinstance(content, dict) or content.get("remote-endpoint") != endpoint:
        return False
    os.unlink(path)
    return True
