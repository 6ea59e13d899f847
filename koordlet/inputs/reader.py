"""Reading the log, also while a daemon writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from koordlet.decision.reads import Reads
from koordlet.decision.snapshot import DEFAULT_MEANS, Application, Evicting, Node, Pod
from koordlet.inputs.answers import Listener
from koordlet.inputs.frame import DamagedError, Frame, scan, unpack
from koordlet.inputs.log import number_of
from koordlet.inputs.model import Changes, Configured, Minute
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.tsdb.files import Files


class LogFile(NamedTuple):
    """``frames``: those that can be found. ``damage``: why there are no more, where a kill is not
    the reason."""

    name: str
    path: str
    frames: tuple[Frame, ...]
    damage: DamagedError | None = None


def log_files(files: Files, where: str) -> list[LogFile]:
    """Oldest first; by their headers. ``where``: the directory, for messages. Raises OSError."""
    found = []
    for name, _ in sorted(files.list(), key=lambda each: number_of(each[0])):
        if not number_of(name):
            continue
        path, frames = f"{where}/{name}", []
        damage = None
        try:
            with files.reader(name) as read:
                for each in scan(read, path):
                    frames.append(each)  # noqa: PERF402 - those before a damaged one count
        except FileNotFoundError:  # it was the oldest
            continue
        except DamagedError as error:
            damage = error
        if frames and not frames[0].is_whole:
            damage, frames = DamagedError(path, 0, "its first frame is not whole"), []
        found.append(LogFile(name, path, tuple(frames), damage))
    return found


def minutes(files: Files, file: LogFile) -> Iterator[tuple[Frame, Minute]]:
    """Frames of a file with their content. Raises DamagedError at the first that is damaged, since
    nothing after it makes sense; OSError."""
    with files.reader(file.name) as read:
        for each in file.frames:
            yield each, unpack(read, each, file.path)
    if file.damage is not None:
        raise file.damage


def frame_of(files: Files, file: LogFile, number: int) -> Minute:
    """The content of one frame alone. Raises DamagedError, OSError."""
    with files.reader(file.name) as read:
        return unpack(read, file.frames[number], file.path)


class Heard:
    """What the log has told so far of one file: the parts of a snapshot, and who decides.

    What is not told to have changed stays the same object, as it was for those who decided.
    """

    def __init__(self) -> None:
        self.node: Node | None = None
        self.slo: NodeSLOSpec | None = None
        self.pods: tuple[Pod, ...] = ()
        self.applications: tuple[Application, ...] = ()
        self.evicting = Evicting()
        self.means = DEFAULT_MEANS
        self.collect_interval_s = 1.0
        self.sources_synced = True
        self.strategies: tuple[Configured, ...] = ()
        self.hooks: tuple[Configured, ...] = ()
        self.shown: tuple[str, ...] = ()
        self.paused: tuple[str, ...] = ()
        self._listener = Listener()

    @property
    def reads(self) -> Reads:
        """All answers so far, each the last one."""
        return self._listener.reads

    def hear(self, changes: Changes) -> None:
        """Raises IndexError, KeyError and ValueError for what no recorder says."""
        self._hear_node(changes)
        if changes.pods is not None:
            pods = {pod.uid: pod for pod in self.pods}
            for uid in changes.gone:
                del pods[uid]
            pods |= {pod.uid: pod for pod in changes.pods}
            self.pods = tuple(pods[uid] for uid in sorted(pods))
        if changes.slo is not UNSET:
            self.slo = changes.slo
        if changes.answers is not None:
            self._listener.hear(changes.answers)
        for name in _PLAIN:
            found = getattr(changes, name)
            if found is not None:
                setattr(self, name, found)

    def _hear_node(self, changes: Changes) -> None:
        capabilities = self.node.capabilities if self.node is not None else {}
        if changes.capabilities is not None:
            capabilities = changes.capabilities
        node = changes.node if changes.node is not None else self.node
        if node is not None and (node is not self.node or node.capabilities is not capabilities):
            self.node = msgspec.structs.replace(node, capabilities=capabilities)


_PLAIN = (
    "applications",
    "evicting",
    "means",
    "collect_interval_s",
    "sources_synced",
    "strategies",
    "hooks",
    "shown",
    "paused",
)
"""Fields that ``Heard`` takes from ``Changes`` as they are."""
