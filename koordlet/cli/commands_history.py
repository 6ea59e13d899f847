"""The part of the table of commands that looks back."""

from __future__ import annotations

from koordlet.cli.arguments import (
    CONFIG_IF_ANY,
    SOCKET,
    STATE_DIR,
    Command,
    argument,
    duration,
    time_range,
)

HISTORY: tuple[Command, ...] = (
    Command(
        "query",
        "numbers out of the local time-series store: one per series, or one for each step of time",
        "koordlet.cli.show.query:main",
        (
            argument(
                "kind",
                words="koordlet.collectors:CATALOGUE",
                help="kind of series, such as pod_cpu_usage",
            ),
            argument("match", nargs="*", metavar="label=value", help="only series with this label"),
            argument("--window", metavar="DURATION", help="how far back from now (default: 5m)"),
            *time_range(),
            argument(
                "--step",
                dest="step",
                type=duration,
                metavar="DURATION",
                help="a number for each step of this length (default: one for all of the time; "
                "with csv and plot a length that suits)",
            ),
            argument(
                "--aggregate",
                default="avg",
                choices=("avg", "p50", "p90", "p95", "p99", "last", "count", "min", "max"),
                help="how samples become one number (default: avg)",
            ),
            argument(
                "-o",
                "--output",
                choices=("table", "csv", "json", "yaml", "plot"),
                default="table",
                help="table and plot for people; csv, json and yaml for scripts (default: table)",
            ),
            STATE_DIR,
            CONFIG_IF_ANY,
            SOCKET,
        ),
    ),
    Command(
        "report",
        "a post-mortem on one HTML page: what latency-sensitive work suffered, who made it wait, "
        "what koordlet did and why",
        "koordlet.cli.show.report:main",
        (
            *time_range(default="1h"),
            argument(
                "-o",
                "--output",
                metavar="FILE",
                default="incident.html",
                is_path=True,
                help="where the page goes; - prints it (default: incident.html)",
            ),
            STATE_DIR,
            CONFIG_IF_ANY,
            SOCKET,
        ),
    ),
)
