"""The table of commands: parser, help, completion and dispatch all come from it."""

from __future__ import annotations

from koord_scheduler.cli.arguments import CLUSTER, CONFIG, Command, argument

COMMANDS: tuple[Command, ...] = (
    Command(
        "run",
        "run roles of the companion in the foreground",
        "koord_scheduler.cli.run:main",
        (
            argument(
                "--roles",
                metavar="LIST",
                default="manager",
                help="comma-separated; there is: manager (default: manager)",
            ),
            argument(
                "--controllers",
                metavar="LIST",
                default="*",
                help="comma-separated: * for all that are on by default, NAME, -NAME (default: *)",
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
            argument(
                "--log-level",
                choices=("debug", "info", "warning", "error"),
                default="info",
                help="what is logged (default: info)",
            ),
        ),
    ),
)
