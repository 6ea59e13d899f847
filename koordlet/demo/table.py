"""The summary in text form, shared by the terminal and the report: a row a figure, a column an
arm."""

from __future__ import annotations

from dataclasses import dataclass

from koordlet.demo.model import ARMS, ArmResult, DemoResult, Goal, Moment, Settings
from koordlet.demo.stats import of_arm

_BLOCK_MIB = 65536 / (1 << 20)


@dataclass(frozen=True)
class Figure:
    """``field`` of ArmResult times ``scale``, a second where ``per_second``; ``of_be`` figures
    mean nothing in an arm without BE."""

    label: str
    field: str
    form: str
    scale: float = 1.0
    per_second: bool = False
    of_be: bool = False


FIGURES = (
    Figure("LS requests", "requests", ".0f"),
    Figure("LS latency p50, ms", "p50_ms", ".2f"),
    Figure("LS latency p99, ms", "p99_ms", ".2f"),
    Figure("LS latency p99.9, ms", "p999_ms", ".2f"),
    Figure("LS waits for a CPU, ms/s", "waited_ms_per_s", ".1f"),
    Figure("  behind its own tasks", "behind_own_ms_per_s", ".1f"),
    Figure("  behind BE", "behind_be_ms_per_s", ".1f"),
    Figure("  behind others", "behind_others_ms_per_s", ".1f"),
    Figure("LS periods throttled", "ls_throttled_ratio", ".1%"),
    Figure("BE periods throttled", "be_throttled_ratio", ".1%", of_be=True),
    Figure("node CPU utilisation", "node_utilisation_ratio", ".1%"),
    Figure("LS CPU, cores", "ls_cores", ".2f"),
    Figure("BE CPU, cores", "be_cores", ".2f", of_be=True),
    Figure("others, cores", "other_cores", ".2f"),
    Figure("BE of what LS leaves", "be_share_of_left_ratio", ".1%", of_be=True),
    Figure("BE hashed, MiB/s", "be_blocks", ".0f", _BLOCK_MIB, per_second=True, of_be=True),
    Figure("BE moved, MiB/s", "be_moved_mib", ".0f", per_second=True, of_be=True),
)


def settings_line(settings: Settings) -> str:
    """One sentence that says what was run."""
    where = "simulated on the fake kernel" if settings.simulated else f"Linux {settings.kernel}"
    return (
        f"{where}, cgroup {settings.cgroup_layout}, {settings.cpus} CPUs; "
        f"{settings.rate_per_s:g} requests/s of about {settings.service_ms:g} ms on "
        f"{settings.workers} workers; BE: {settings.burners} burners and a thrasher of "
        f"2 x {settings.thrash_mib} MiB; {settings.slices} slices of {settings.slice_s:g} s an arm "
        f"in an order drawn from seed {settings.seed}, the first second of each dropped."
    )


def header(demo: DemoResult) -> tuple[str, ...]:
    return ("", *(ARMS[result.arm].title for result in _results(demo)))


def rows(demo: DemoResult) -> list[tuple[str, ...]]:
    """Arms in the order of ``ARMS``; ``-`` where there is nothing. What no arm has is left out."""
    results = _results(demo)
    found = [(figure.label, *(_cell(figure, result) for result in results)) for figure in FIGURES]
    return [row for row in found if set(row[1:]) != {"-"}]


def goal_text(goal: Goal) -> str:
    """``node CPU utilisation: 0.97 [0.95, 0.98], wanted at least 0.85``."""
    value = "not known, its arms were not run"
    if goal.value is not None:
        value = f"{goal.value:.2f}{interval_text(goal)}"
    return f"{goal.name}: {value}, wanted {goal.wanted}"


def interval_text(goal: Goal) -> str:
    """`` [low, high]``; empty where there are too few slices to tell."""
    if goal.low is None or goal.high is None:
        return ""
    return f" [{goal.low:.2f}, {goal.high:.2f}]"


def moment_text(moment: Moment) -> str:
    """``group resource: previous -> wanted``, or what the alarm is about."""
    if not moment.resource:
        return f"{moment.result}: {moment.cgroup}"
    done = "" if moment.result == "written" else f" ({moment.result})"
    return (
        f"{moment.cgroup} {moment.resource}: {moment.previous or '?'} -> "
        f"{moment.wanted or '?'}{done}"
    )


def time_text(moment: Moment) -> str:
    """Seconds from the first request."""
    return f"{moment.t:.2f} s" if moment.t >= 0 else f"{moment.t:.2f} s (warm-up)"


def _results(demo: DemoResult) -> list[ArmResult]:
    return [result for name in ARMS if (result := of_arm(demo, name)) is not None]


def _cell(figure: Figure, result: ArmResult) -> str:
    value = getattr(result, figure.field)
    if value is None or (figure.of_be and not ARMS[result.arm].best_effort):
        return "-"
    per_second = result.seconds if figure.per_second else 1.0
    return format(value * figure.scale / per_second, figure.form)
