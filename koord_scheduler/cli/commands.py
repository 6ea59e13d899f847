"""The table of commands: parser, help, completion and dispatch all come from it."""

from __future__ import annotations

from koord_scheduler.cli.admission import ADMISSION, GATES
from koord_scheduler.cli.arguments import (
    CLUSTER,
    CONFIG,
    FILES,
    LOOK,
    OUTPUT,
    Command,
    argument,
    exit_code,
    files,
)
from koord_scheduler.cli.scheduling.commands import SCHEDULING
from koord_scheduler.cli.switching.commands import SWITCHING
from koord_scheduler.cli.watching import WATCHING

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

DESCHEDULER_CONFIG = argument(
    "--descheduler-config",
    metavar="FILE",
    default="",
    is_path=True,
    help="DeschedulerConfiguration in YAML (default: no plugins; migration jobs are carried out)",
)

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
                "--optimality-gap",
                metavar="SECONDS",
                type=float,
                default=0.0,
                help="the role scheduler measures so often how far its placement is from the best "
                "(needs highspy; 0: never, the default)",
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
            DESCHEDULER_CONFIG,
            *WATCHING,
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
        LOOK,
    ),
    *SCHEDULING,
    Command(
        "mutations",
        "what admission makes of pods",
        children=(
            Command(
                "explain",
                "each change that the profiles make to a pod, and what admission would refuse",
                "koord_scheduler.cli.mutations:main",
                (
                    files("pods, or workloads that make pods, in YAML or JSON"),
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
                    exit_code("pods would have to go"),
                    *_QUOTA,
                ),
            ),
        ),
    ),
    Command(
        "migrate",
        "which pods one round of the descheduler would move, where to, and which may not go",
        "koord_scheduler.cli.migrate:main",
        (
            argument("--dry-run", action="store_true", help="only look, which is all it does"),
            DESCHEDULER_CONFIG,
            FILES,
            OUTPUT,
            *CLUSTER,
        ),
    ),
    *SWITCHING,
    Command(
        "completion",
        "print a completion script for a shell",
        "koord_scheduler.cli.completion:main",
        (argument("shell", choices=("bash", "tcsh", "zsh")),),
    ),
)
