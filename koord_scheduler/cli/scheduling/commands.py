"""The table of commands about scheduling; `cli.commands` has the others."""

from __future__ import annotations

from koord_scheduler.cli.arguments import (
    CLUSTER,
    FILES,
    LOOK,
    OUTPUT,
    Argument,
    Command,
    argument,
    exit_code,
    files,
)


def _set(what: str) -> Argument:
    return argument(
        "--set",
        metavar="PLUGIN.ARGUMENT=VALUE",
        action="append",
        default=[],
        help=f"{what}; may be given again",
    )


_POLICY = (
    argument(
        "--config",
        metavar="FILE",
        default="",
        is_path=True,
        help="KubeSchedulerConfiguration (default: the built-in profile)",
    ),
    _set(
        "change an argument, as loadaware.cpu=70, fit.strategy=MostAllocated, strain.weight=2 or "
        "spread.enabled=false"
    ),
)
_JOURNAL = argument(
    "--journal",
    metavar="FILE",
    default="",
    is_path=True,
    help="a journal of `koord-scheduler record` in place of the API server",
)
_AT = argument(
    "--at",
    metavar="TIME",
    default="",
    help="as of this time of the journal: 2026-01-31T12:00:00Z, Unix seconds, or 2h (ago) "
    "(default: its end)",
)
_DAY = argument(
    "--journal",
    metavar="FILE",
    default="",
    is_path=True,
    help="policies: all of this recorded time, or its state at the time of --at",
)
_HTML = argument(
    "--html", metavar="FILE", default="", is_path=True, help="write a page with plots to FILE"
)
_ALL = argument("--all", action="store_true", help="print every pod, however many they are")
_NO_PREEMPTION = argument("--no-preemption", action="store_true", help="nobody is evicted")
_EXIT = exit_code("it is not all well")
_SCHEDULING = (_JOURNAL, _AT, *_POLICY)

SCHEDULING: tuple[Command, ...] = (
    Command(
        "explain",
        "why a pod or a gang has no node, a quota lets nobody in, or a node offers what it does",
        "koord_scheduler.cli.scheduling.why:main",
        (
            argument(
                "what",
                metavar="KIND",
                help="pod, gang, quota or node; or the name alone: of a node, or of a pod or a "
                "gang as NAMESPACE/NAME",
            ),
            argument("name", metavar="NAME", nargs="?", default="", help="its name"),
            argument(
                "--pods",
                metavar="N",
                type=int,
                default=10,
                help="pods of a node shown, those that use most first (default: 10)",
            ),
            *_SCHEDULING,
            *LOOK,
        ),
    ),
    Command(
        "queue",
        "who waits for a node: the position, and what it waits for",
        "koord_scheduler.cli.scheduling.queue:main",
        (_ALL, FILES, *_SCHEDULING, OUTPUT, *CLUSTER),
    ),
    Command(
        "simulate",
        "which pods of files would get which node, and what the cluster would be like",
        "koord_scheduler.cli.scheduling.simulate:main",
        (
            files(
                "pods, workloads, nodes, quotas, PodGroups ... in YAML or JSON; with a Node among "
                "them they are the whole cluster, else they come into that of the API server or "
                "the journal"
            ),
            argument(
                "--nodes",
                metavar="COUNT:SHAPE",
                action="append",
                default=[],
                help="nodes that nobody has, as 100:32c256Gi or "
                "8:96c1Ti+nvidia.com/gpu=8+label:pool=a+zones=3; they are the whole cluster, or, "
                "with a + before COUNT, come into that of the API server; may be given again",
            ),
            _NO_PREEMPTION,
            _ALL,
            _HTML,
            _EXIT,
            *_SCHEDULING,
            OUTPUT,
            *CLUSTER,
        ),
    ),
    Command(
        "diff",
        "what another policy of the scheduler, or another slo-controller-config, would change",
        "koord_scheduler.cli.scheduling.policies:main",
        (
            argument(
                "old",
                metavar="OLD",
                help="file with a KubeSchedulerConfiguration, or the word built-in; or a file with "
                "a slo-controller-config or its data, or the word live: the one among the objects",
            ),
            argument("new", metavar="NEW", help="likewise"),
            exit_code("anything differs"),
            argument(
                "--pending-only",
                action="store_true",
                help="policies: only pods without a node are decided for, not those that run too",
            ),
            argument("--no-preemption", action="store_true", help="policies: nobody is evicted"),
            _set("policies: an argument that NEW has otherwise"),
            _ALL,
            _HTML,
            _DAY,
            _AT,
            *LOOK,
        ),
    ),
    Command(
        "record",
        "what the API server tells, into a journal for explain --at, simulate, diff and replay",
        "koord_scheduler.cli.scheduling.record:main",
        (
            argument("--out", metavar="FILE", required=True, is_path=True, help="the journal"),
            argument(
                "--for",
                dest="duration",
                metavar="TIME",
                default="",
                help="how long, as 90s, 30m, 24h or 7d (default: until it is interrupted)",
            ),
            argument(
                "--most",
                metavar="SIZE",
                default="1Gi",
                help="of a file, as 512Mi; then it becomes FILE.1 in place of an older one, and "
                "FILE begins anew (default: 1Gi)",
            ),
            *CLUSTER,
        ),
    ),
    Command(
        "replay",
        "a journal once more: every decision made again, and the hash of all placements",
        "koord_scheduler.cli.scheduling.replay:main",
        (
            argument("journal", metavar="FILE", help="a journal of `koord-scheduler record`"),
            argument(
                "--course",
                action="store_true",
                help="let the policy decide where all new pods go, whatever the record says; "
                "without it each decision is made again in the state of the record",
            ),
            argument(
                "--expect", metavar="HASH", default="", help="end with 1 where the hash is another"
            ),
            _NO_PREEMPTION,
            _ALL,
            _HTML,
            _EXIT,
            argument("--at", metavar="TIME", default="", help="stop there (default: at its end)"),
            *_POLICY,
            OUTPUT,
        ),
    ),
    Command(
        "bench",
        "how fast a policy decides in a scenario of the reference's test/perf format",
        "koord_scheduler.cli.scheduling.scenario:main",
        (
            argument(
                "--scenario", metavar="FILE", required=True, is_path=True, help="the scenario"
            ),
            argument(
                "--baseline",
                metavar="FILE",
                default="",
                is_path=True,
                help="result of an earlier run in JSON: end with 1 where this one is worse by more "
                "than the thresholds of the scenario",
            ),
            *_POLICY,
            OUTPUT,
        ),
    ),
    Command(
        "doctor",
        "whether a scheduler can work here: definitions, rights, gates, others like it, clocks",
        "koord_scheduler.cli.scheduling.doctor:main",
        (
            argument(
                "--roles",
                metavar="LIST",
                default="scheduler",
                help="whose rights are looked at, comma-separated (default: scheduler)",
            ),
            *_POLICY,
            OUTPUT,
            *CLUSTER,
        ),
    ),
)
