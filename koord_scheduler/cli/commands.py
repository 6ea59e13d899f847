"""The table of commands: parser, help, completion and dispatch all come from it."""

from __future__ import annotations

from koord_scheduler.cli.admission import ADMISSION, GATES
from koord_scheduler.cli.arguments import CLUSTER, CONFIG, FILES, OUTPUT, Command, argument

_LOOK = (FILES, OUTPUT, *CLUSTER, *CONFIG)
_QUOTA = (
    FILES,
    OUTPUT,
    argument(
        "--feature-gates",
        metavar="LIST",
        default="",
        help="gates of quotas as the scheduler has them: MultiQuotaTree=true,... (default: none)",
    ),
    argument(
        "--plugin-args",
        metavar="FILE",
        default="",
        is_path=True,
        help="arguments of ElasticQuota in YAML or JSON as the scheduler has them "
        "(default: its defaults)",
    ),
    *CLUSTER,
)

_POLICY = (
    argument(
        "--config",
        metavar="FILE",
        default="",
        is_path=True,
        help="KubeSchedulerConfiguration (default: the built-in profile)",
    ),
    argument(
        "--set",
        metavar="PLUGIN.ARGUMENT=VALUE",
        action="append",
        default=[],
        help="change an argument, as loadaware.cpu=70, fit.strategy=MostAllocated, "
        "strain.weight=2 or spread.enabled=false; may be given again",
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
    help="as of this time of the journal: 2026-01-31T12:00:00Z, Unix seconds, or -2h "
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
_EXIT = argument(
    "--exit-code", action="store_true", help="end with 1 where it is not all well, for scripts"
)
_SCHEDULING = (_JOURNAL, _AT, *_POLICY)

COMMANDS: tuple[Command, ...] = (
    Command(
        "run",
        "run roles of the companion in the foreground",
        "koord_scheduler.cli.lean:main",
        (
            argument(
                "--roles",
                metavar="LIST",
                default="manager",
                help="comma-separated: manager, scheduler, descheduler (default: manager)",
            ),
            argument(
                "--config",
                metavar="FILE",
                default="",
                is_path=True,
                help="KubeSchedulerConfiguration with the profiles of the role scheduler (default: "
                "one profile for pods that ask for koord-scheduler)",
            ),
            argument(
                "--debug-flags",
                action="store_true",
                help="the role scheduler lets anybody who reaches its metrics turn on logging of "
                "scores and refusals at /debug/flags",
            ),
            argument(
                "--controllers",
                metavar="LIST",
                default="*",
                help="comma-separated: * for all that are on by default, NAME, -NAME (default: *)",
            ),
            argument(
                "--sync-gpu-shared",
                action="store_true",
                help="also offer koordinator.sh/gpu.shared, 100 for each healthy GPU",
            ),
            *CLUSTER,
            *CONFIG,
            argument(
                "--leader-election-namespace",
                metavar="NAMESPACE",
                default="koordinator-system",
                help="namespace of the lease (default: koordinator-system)",
            ),
            argument(
                "--no-leader-election",
                action="store_true",
                help="lead without a lease: for a process that is the only one",
            ),
            argument(
                "--metrics-addr",
                metavar="ADDRESS",
                default=":8080",
                help="HOST:PORT of the metrics, 0 for none (default: :8080)",
            ),
            argument(
                "--health-probe-addr",
                metavar="ADDRESS",
                default=":8000",
                help="HOST:PORT of /healthz and /readyz, 0 for none (default: :8000)",
            ),
            argument(
                "--rest-config-qps",
                metavar="N",
                type=float,
                default=30.0,
                help="requests to the API server per second, without watches (default: 30)",
            ),
            argument(
                "--rest-config-burst",
                metavar="N",
                type=int,
                default=50,
                help="requests at once (default: 50)",
            ),
            *ADMISSION,
            argument(
                "--yarn-resource-manager",
                metavar="[CLUSTER=]URL",
                action="append",
                default=[],
                help="a ResourceManager of YARN that may use batch resources, as http://HOST:8088; "
                "with commas where several stand in for each other; may be given again",
            ),
            argument(
                "--yarn-user",
                metavar="NAME",
                default="",
                help="who asks the ResourceManager, where it has no Kerberos (default: nobody)",
            ),
            argument(
                "--yarn-token-file",
                metavar="FILE",
                default="",
                is_path=True,
                help="bearer token for a gateway before the ResourceManager",
            ),
            argument(
                "--yarn-ca-file",
                metavar="FILE",
                default="",
                is_path=True,
                help="authority that signed its certificate (default: those of the system)",
            ),
            argument(
                "--yarn-namespace",
                metavar="NAMESPACE",
                default="hadoop-yarn",
                help="namespace of the pods of NodeManagers (default: hadoop-yarn)",
            ),
            argument(
                "--yarn-over-commit-timeout",
                metavar="SECONDS",
                type=int,
                default=-1,
                help="kill containers that no longer fit after this time; -1: let them end "
                "(default: -1)",
            ),
            argument(
                "--descheduler-config",
                metavar="FILE",
                default="",
                is_path=True,
                help="DeschedulerConfiguration in YAML (default: no plugins; migration jobs are "
                "carried out)",
            ),
            argument(
                "--log-level",
                choices=("debug", "info", "warning", "error"),
                default="info",
                help="what is logged (default: info)",
            ),
        ),
    ),
    Command(
        "nodes",
        "load of every node, what it offers to batch and mid pods, and why",
        "koord_scheduler.cli.nodes:main",
        _LOOK,
    ),
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
            *_LOOK,
        ),
    ),
    Command(
        "simulate",
        "which pods of files would get which node, and what the cluster would be like",
        "koord_scheduler.cli.scheduling.simulate:main",
        (
            argument(
                "-f",
                "--file",
                metavar="FILE",
                action="append",
                default=[],
                dest="files",
                is_path=True,
                help="pods, workloads, nodes, quotas, PodGroups ... in YAML or JSON; with a Node "
                "among them they are the whole cluster, else they come into that of the API server "
                "or the journal; may be given again",
            ),
            argument(
                "--nodes",
                metavar="COUNT:SHAPE",
                action="append",
                default=[],
                help="nodes that nobody has, as 100:32c256Gi or "
                "8:96c1Ti+nvidia.com/gpu=8+label:pool=a+zones=3; may be given again",
            ),
            argument("--no-preemption", action="store_true", help="nobody is evicted"),
            _ALL,
            _HTML,
            _EXIT,
            *_SCHEDULING,
            OUTPUT,
            *CLUSTER,
        ),
    ),
    Command(
        "queue",
        "who waits for a node: the position, and what it waits for",
        "koord_scheduler.cli.scheduling.queue:main",
        (_ALL, FILES, *_SCHEDULING, OUTPUT, *CLUSTER),
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
            argument("--no-preemption", action="store_true", help="nobody is evicted"),
            _ALL,
            _HTML,
            _EXIT,
            argument("--at", metavar="TIME", default="", help="stop there (default: at its end)"),
            *_POLICY,
            OUTPUT,
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
            argument(
                "--exit-code",
                action="store_true",
                help="end with 1 where anything differs, for scripts",
            ),
            argument(
                "--pending-only",
                action="store_true",
                help="policies: only pods without a node are decided for, not those that run too",
            ),
            argument("--no-preemption", action="store_true", help="policies: nobody is evicted"),
            argument(
                "--set",
                metavar="PLUGIN.ARGUMENT=VALUE",
                action="append",
                default=[],
                help="policies: an argument that NEW has otherwise; may be given again",
            ),
            _ALL,
            _HTML,
            _DAY,
            _AT,
            *_LOOK,
        ),
    ),
    Command(
        "mutations",
        "what admission makes of pods",
        children=(
            Command(
                "explain",
                "each change that the profiles make to a pod, and what admission would refuse",
                "koord_scheduler.cli.mutations:main",
                (
                    argument(
                        "-f",
                        "--file",
                        metavar="FILE",
                        action="append",
                        default=[],
                        dest="files",
                        is_path=True,
                        help="pods, or workloads that make pods, in YAML or JSON; may be given "
                        "again",
                    ),
                    argument(
                        "--profiles",
                        metavar="FILE",
                        action="append",
                        default=[],
                        is_path=True,
                        help="profiles, namespaces, priority classes and quotas in YAML or JSON "
                        "instead of those of the API server; may be given again",
                    ),
                    argument(
                        "-n",
                        "--namespace",
                        metavar="NAME",
                        default="",
                        help="of pods that name none (default: default)",
                    ),
                    GATES,
                    OUTPUT,
                    *CLUSTER,
                ),
            ),
        ),
    ),
    Command(
        "quota",
        "who may use how much, and why",
        children=(
            Command(
                "tree",
                "each quota with what it has, requests, uses and may use now",
                "koord_scheduler.cli.quota:tree",
                _QUOTA,
            ),
            Command(
                "invoice",
                "who lent whom how much, and which quota must give something back",
                "koord_scheduler.cli.quota:lent",
                _QUOTA,
            ),
            Command(
                "what-if",
                "what another min or max of a quota would change, and which pods would have to go",
                "koord_scheduler.cli.quota:changed",
                (
                    argument("name", metavar="QUOTA", help="name of the quota"),
                    argument(
                        "--min",
                        dest="least",
                        metavar="LIST",
                        default="",
                        help="RESOURCE=QUANTITY,...; what is not named stays",
                    ),
                    argument(
                        "--max",
                        dest="most",
                        metavar="LIST",
                        default="",
                        help="RESOURCE=QUANTITY,...; what is not named stays",
                    ),
                    argument(
                        "--exit-code",
                        action="store_true",
                        help="end with 1 where pods would have to go, for scripts",
                    ),
                    *_QUOTA,
                ),
            ),
        ),
    ),
    Command(
        "completion",
        "print a completion script for a shell",
        "koord_scheduler.cli.completion:main",
        (argument("shell", choices=("bash", "tcsh", "zsh")),),
    ),
)
