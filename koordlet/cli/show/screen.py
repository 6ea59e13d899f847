"""One screen of ``koordlet top`` as lines of styled text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from koordlet.admin.model.usage import PodView, PressureView, TopView
from koordlet.admin.pressure import PRESSED_PERCENT, THROTTLED_RATIO
from koordlet.cli import output
from koordlet.cli.show.explain import headline
from koordlet.cli.show.keys import HELP, ORDERS, Screen
from koordlet.cli.show.limits import NO_LIMIT, Limit
from koordlet.cli.show.pods import title
from koordlet.cli.show.processes import Process
from koordlet.decision.plan import Result
from koordlet.decision.record import PodKind, Record
from koordlet.drawing.spans import Line, Span
from koordlet.history.view import PastPodView, PastView
from koordlet.protocol.qos import QoSClass

BAR_CELLS = 40
DECISIONS_SHOWN = 6
_SHORT_SCREEN, _TALL_SCREEN = 24, 40
_NARROWEST_NAME = 20
# In the order of the bar; what is none of them is free.
CLASSES = (("LS", "#"), ("BE", "="), ("system", "+"))
_QOS = frozenset(each.value.lower() for each in QoSClass)
_WRONG = frozenset({Result.UNSUPPORTED, Result.REFUSED, Result.CONFLICT, Result.DOUBTFUL})


_Cell = tuple[str, str]  # text and style


class Frame(NamedTuple):
    """What one screen is made of. ``decisions``: those worth a line, newest first."""

    view: TopView
    decisions: Sequence[Record] = ()
    processes: Sequence[Process] = ()
    limits: Mapping[str, Limit] = {}


def draw(
    frame: Frame, screen: Screen, height: int | None = None, width: int | None = None
) -> list[Line]:
    """Node, biggest processes of the system, last decisions, pods. Where ``height`` is given, pods
    that do not fit are named by number; where ``width`` is given, long names are cut."""
    if screen.is_help:
        return _help()
    found = [*_head(frame.view, screen), *_processes(frame, height), *_decisions(frame, height), ()]
    pods = chosen(frame.view.pods, screen)
    if not pods and screen.filter:
        return [*found, (Span(f"No pod and no application matches {screen.filter!r}.", "dim"),)]
    header, *rows = _table(frame, pods, width)
    found.append(header)
    if height is None:
        return [*found, *rows]
    room = max(height - len(found), 1)
    if len(rows) <= room:
        return [*found, *rows]
    first = min(screen.first, len(rows) - 1)
    shown = rows[first : first + room - 1]
    hidden = {"above": first, "below": len(rows) - first - len(shown)}
    text = ", ".join(f"{count} {where}" for where, count in hidden.items() if count)
    return [*found, *shown, (Span(f"... {text}; scroll, or filter with /", "dim"),)]


def chosen(pods: Iterable[PodView], screen: Screen) -> list[PodView]:
    """Those that the filter lets through, in the chosen order."""
    words = screen.filter.lower()
    through = [pod for pod in pods if _matches(pod, words)]
    return sorted(through, key=_KEYS[screen.order], reverse=screen.is_reversed)


def _matches(pod: PodView, words: str) -> bool:
    """A class is named in full: "be" is part of every "kubepods"."""
    if words in _QOS:
        return pod.qos.lower() == words
    return words in f"{title(pod)} {pod.cgroup}".lower()


def worth_a_line(
    remembered: Sequence[Record], new: Iterable[Record], most: int = 32
) -> tuple[Record, ...]:
    """Decisions of this and earlier frames, newest first. Notes say what was not done: they never
    push a decision out, the same note counts once, and one without a text not at all."""
    found: dict[object, Record] = {}
    for each in sorted((*remembered, *new), key=lambda each: each.time):
        if each.resource:
            found[each.time, each.owner, each.cgroup, each.resource] = each
        elif each.why.text:
            found[each.owner, each.why.text] = each
    decided = [each for each in found.values() if each.resource][-most:]
    notes = [each for each in found.values() if not each.resource]
    notes = notes[-(most - len(decided)) :] if len(decided) < most else []
    return tuple(sorted((*decided, *notes), key=lambda each: -each.time))


def _head(view: TopView, screen: Screen) -> list[Line]:
    used = {"LS": view.cpu_ls_cores, "BE": view.cpu_be_cores, "system": view.cpu_system_cores}
    legend = [
        span
        for name, sign in CLASSES
        for span in (Span(f"{sign} {name} {output.cores(used[name])}", name), Span("  "))
    ]
    if view.be_limit_cores is not None:
        legend.append(Span(f"BE limit {output.cores(view.be_limit_cores)}", "BE"))
    memory = f"{output.size(view.memory_used_bytes)} of {output.size(view.memory_capacity_bytes)}"
    cpu = f"{output.cores(view.cpu_used_cores)} of {output.cores(view.cpu_capacity_cores)} cores"
    cells = _cells(view.memory_used_bytes or 0, view.memory_capacity_bytes)
    bar = ("#" * cells).ljust(BAR_CELLS)
    past = isinstance(view, PastView)
    time = output.date(view.time) if past else output.clock(view.time)
    found: list[Line] = [
        (Span(f"{output.clean(view.node)}  {time}", "head"), *_age(view), *_state(screen)),
        (Span("CPU     ["), *_cpu_bar(used, view.cpu_capacity_cores), Span(f"] {cpu}")),
        (Span(" " * 8), *legend),
        (Span(f"Memory  [{bar}] {memory}"), *_cold(view)),
        (Span("PSI     "), *_pressure(view.pressure)),
    ]
    if isinstance(view, PastView):
        found += [(Span(f"Note    {note}", "warn"),) for note in view.notes]
    return found


def _age(view: TopView) -> list[Span]:
    if not isinstance(view, PastView):
        return []
    return [Span("  past", "warn"), Span(f", samples {output.span(view.age_s)} old", "dim")]


def _cold(view: TopView) -> list[Span]:
    """Where somebody measures it. Page cache is not part of the memory in use."""
    cold = view.cold
    if cold is None or not cold.method:
        return []
    parts = (("page cache", cold.file_bytes), ("anonymous", cold.anon_bytes))
    text = ", ".join(f"{name} {output.size(size)}" for name, size in parts if size is not None)
    return [Span(f"  cold: {text}", "dim")] if text else []


def _state(screen: Screen) -> list[Span]:
    """What keys have changed; nothing of it in a frame that nobody steers."""
    found = [Span("  paused, space goes on", "warn")] if screen.is_paused else []
    if screen.order != ORDERS[0] or screen.is_reversed:
        found.append(Span(f"  by {screen.order}{', reversed' * screen.is_reversed}", "dim"))
    if screen.is_typing:
        found.append(Span(f"  filter: {output.clean(screen.filter)}_", "warn"))
    elif screen.filter:
        found.append(Span(f"  filter: {output.clean(screen.filter)}", "dim"))
    return found


def _cpu_bar(used: Mapping[str, float | None], capacity: float) -> list[Span]:
    """Cells by cumulated cores, so that rounding never makes the bar longer than the whole."""
    found, length, cores = [], 0, 0.0
    for name, sign in CLASSES:
        cores += used[name] or 0.0
        cells = max(_cells(cores, capacity) - length, 0)
        length += cells
        found.append(Span(sign * cells, name))
    return [*found, Span(" " * (BAR_CELLS - length))]


def _cells(part: float, whole: float) -> int:
    return round(BAR_CELLS * min(max(part / whole, 0.0), 1.0)) if whole > 0 else 0


def _pressure(pressure: PressureView | None) -> list[Span]:
    if pressure is None:
        return [Span("not known", "dim")]
    found = []
    for name in ("cpu", "memory", "io"):
        value = getattr(pressure, f"{name}_some")
        found.append(Span(f"{name} {output.percent(value)}", _pressed(value)))
        found.append(Span("  "))
    return [*found, Span("of the last 10 s")]


def _pressed(percent: float | None) -> str:
    return _grade((percent or 0.0) / PRESSED_PERCENT)


def _grade(part: float) -> str:
    """``part``: 1 is bad, half of it worth a look."""
    return "bad" if part >= 1 else "warn" if part >= 0.5 else ""


def _processes(frame: Frame, height: int | None) -> list[Line]:
    """On a screen that is not tall, decisions and pods need the room more."""
    most = len(frame.processes)
    if height is not None and height < _TALL_SCREEN:
        most = 3 if height > _SHORT_SCREEN else 1
    rows = [
        (f"{each.cores:.2f}", output.size(each.rss_bytes), str(each.pid), each.name, each.cgroup)
        for each in frame.processes[:most]
    ]
    if not rows:
        return []
    header, *lines = output.columns((">CPU", ">MEMORY", ">PID", "PROCESS", "CGROUP"), rows)
    total = output.cores(frame.view.cpu_system_cores)
    return [
        (),
        (Span(f"System ({total} cores), its biggest processes:"),),
        (Span(f"  {header}", "dim"),),
        *((Span(f"  {line}", "system"),) for line in lines),
    ]


def _decisions(frame: Frame, height: int | None) -> list[Line]:
    most = DECISIONS_SHOWN if height is None else min(DECISIONS_SHOWN, height // 4)
    lines = list(map(_decision, frame.decisions[:most]))
    return [(), (Span("Last decisions:"),), *lines] if lines else []


def _decision(decision: Record) -> Line:
    what = headline(decision) if decision.resource else output.clean(decision.why.text)
    style = "dim" if not decision.resource else "bad" if decision.result in _WRONG else ""
    time = Span(f"  {output.clock(decision.time)}  ", "dim")
    return time, Span(f"{decision.owner}: {what}", style)


_HEADER = (
    ("NAME", False),
    ("QOS", False),
    ("CPU", True),
    ("LIMIT", True),
    ("THROTTLED", True),
    ("WAIT", True),
    ("CPI", True),
    ("PSI CPU", True),
    ("MEM", True),
    ("IO", True),
    ("MEMORY", True),
    ("LIMIT", True),
    ("LLC", True),
    ("GPU", True),
    ("GPU MEM", True),
    ("AGE", True),
    ("KIND", False),
    ("CGROUP", False),
)
_OPTIONAL: Mapping[frozenset[str], Callable[[PodView], bool]] = {
    # Of a process on a GPU, the driver may not say one of the two.
    frozenset({"GPU", "GPU MEM"}): lambda pod: (
        pod.gpu_memory_bytes is not None or pod.gpu_core_percent is not None
    ),
    frozenset({"CPI"}): lambda pod: pod.cycles_per_instruction is not None,
    frozenset({"LLC"}): lambda pod: pod.llc_bytes is not None,
}
"""Columns that stand there where they say something of somebody."""
_LIVE = frozenset({"LIMIT"})
_PAST = frozenset({"AGE"})
"""What the kernel has in force is not kept; how old samples were matters there alone."""


def _table(frame: Frame, pods: Sequence[PodView], width: int | None) -> list[Line]:
    longest = None if width is None else max(_NARROWEST_NAME, width // 3)
    rows = [_row(pod, frame.limits.get(pod.cgroup, NO_LIMIT), longest) for pod in pods]
    hidden = _LIVE if isinstance(frame.view, PastView) else _PAST
    for names, has in _OPTIONAL.items():
        hidden |= frozenset() if any(map(has, pods)) else names
    shown = [i for i, (name, _) in enumerate(_HEADER) if name not in hidden]
    header: list[_Cell] = [(name, "dim") for name, _ in _HEADER]
    table = [[row[i] for i in shown] for row in (header, *rows)]
    widths = [max(len(text) for text, _ in column) for column in zip(*table, strict=True)]
    return [_line(row, widths, [_HEADER[i][1] for i in shown]) for row in table]


def _line(row: Sequence[_Cell], widths: Sequence[int], rights: Sequence[bool]) -> Line:
    found = []
    for (text, style), by_right, size in zip(row, rights, widths, strict=True):
        found.append(Span(text.rjust(size) if by_right else text.ljust(size), style))
        found.append(Span("  "))
    return tuple(found)


def _row(pod: PodView, limit: Limit, longest: int | None) -> list[_Cell]:
    """A limit that is nearly reached is worth a look."""
    pressure = pod.pressure or PressureView()
    is_be = pod.qos == "BE"
    cpu = (pod.cpu_cores or 0.0) / limit.cpu_cores if limit.cpu_cores else 0.0
    memory = (pod.memory_bytes or 0) / limit.memory_bytes if limit.memory_bytes else 0.0
    throttled = (pod.throttled_ratio or 0.0) / THROTTLED_RATIO
    cgroup = pod.cgroup if pod.present else f"{pod.cgroup} (absent)"
    return [
        (_cut(title(pod), longest), ""),
        (pod.qos or output.NOTHING, "BE" if is_be else "LS" if pod.qos else "dim"),
        (output.cores(pod.cpu_cores), "warn" if cpu >= 0.9 and not is_be else ""),
        (output.cores(limit.cpu_cores), "dim"),
        # A best-effort pod at its limit is how it should be.
        (_percent(pod.throttled_ratio, 100), "" if is_be else _grade(throttled)),
        (_wait(pod.cpu_wait_ms_per_s), ""),
        (_cpi(pod.cycles_per_instruction), ""),
        *(
            (_percent(value), "" if is_be else _pressed(value))
            for value in (pressure.cpu_some, pressure.memory_some, pressure.io_some)
        ),
        (output.size(pod.memory_bytes), "warn" if memory >= 0.9 else ""),
        (output.size(limit.memory_bytes), "dim"),
        (output.size(pod.llc_bytes), ""),
        (_percent(pod.gpu_core_percent), ""),
        (output.size(pod.gpu_memory_bytes), ""),
        (output.span(pod.age_s if isinstance(pod, PastPodView) else None), "dim"),
        ("app" if pod.kind is PodKind.APPLICATION else pod.kind.value, "dim"),
        (output.clean(cgroup), "dim"),
    ]


def _percent(value: float | None, scale: float = 1.0) -> str:
    return output.NOTHING if value is None else f"{value * scale:.1f}%"


def _wait(ms_per_s: float | None) -> str:
    return output.NOTHING if ms_per_s is None else f"{ms_per_s:.0f}ms/s"


def _cpi(ratio: float | None) -> str:
    return output.NOTHING if ratio is None else f"{ratio:.2f}"


def _cut(name: str, longest: int | None) -> str:
    return name if longest is None or len(name) <= longest else f"{name[: longest - 1]}…"


def _help() -> list[Line]:
    size = max(len(key) for key, _ in HELP)
    return [
        (Span("koordlet top", "head"),),
        (),
        *((Span(f"  {key.ljust(size)}  ", "head"), Span(text)) for key, text in HELP),
        (),
        (Span("LS  ", "LS"), Span("all that is not best-effort")),
        (Span("BE  ", "BE"), Span("best-effort; its limit is what the kernel grants it now")),
        (Span("system  ", "system"), Span("the rest of the node")),
        (),
        (Span("THROTTLED: periods in which the CPU limit stopped it. PSI: the last 10 s."),),
        (Span("WAIT: of its tasks for a CPU, each second; koordlet blame POD says for whom."),),
        (Span("CPI: cycles per instruction in the last window. LLC: what it has of L3 caches."),),
        (Span("LIMIT: what the kernel has in force; - where there is none."),),
        (Span("In the past: AGE is that of the oldest sample but CPI. Limits are not kept."),),
    ]


def _down(value: float | None) -> float:
    return -(value or 0.0)


def _psi(field: str) -> Callable[[PodView], tuple[float, str]]:
    return lambda pod: (_down(getattr(pod.pressure, field, None)), pod.cgroup)


_KEYS: Mapping[str, Callable[[PodView], tuple[float, str]]] = {
    "cpu": lambda pod: (_down(pod.cpu_cores), pod.cgroup),
    "memory": lambda pod: (_down(pod.memory_bytes), pod.cgroup),
    "throttled": lambda pod: (_down(pod.throttled_ratio), pod.cgroup),
    "wait": lambda pod: (_down(pod.cpu_wait_ms_per_s), pod.cgroup),
    "cpi": lambda pod: (_down(pod.cycles_per_instruction), pod.cgroup),
    "llc": lambda pod: (_down(pod.llc_bytes), pod.cgroup),
    "cpu pressure": _psi("cpu_some"),
    "memory pressure": _psi("memory_some"),
    "io pressure": _psi("io_some"),
    "name": lambda pod: (0.0, title(pod)),
}
