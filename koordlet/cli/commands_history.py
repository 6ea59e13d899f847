"""The part of the table of commands that looks back, and ahead."""

from __future__ import annotations

from koordlet.cli.arguments import (
    BACK,
    CONFIG_IF_ANY,
    HERE,
    OUTPUT,
    SOCKET,
    STATE_DIR,
    Command,
    argument,
    duration,
    interval,
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
                nargs="?",
                default="",
                metavar="KIND",
                words="koordlet.collectors:CATALOGUE",
                help="kind of series, such as pod_cpu_usage; with --list part of its name",
            ),
            argument("match", nargs="*", metavar="label=value", help="only series with this label"),
            argument("--window", metavar="DURATION", help="how far back from now (default: 5m)"),
            *time_range(),
            argument(
                "--list", action="store_true", help="only list the kinds, with labels and units"
            ),
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
        group=BACK,
        examples=(
            "koordlet query --list psi  # kinds whose name has it",
            "koordlet query pod_cpu_usage --window 10m",
            "koordlet query pod_psi psi_resource=cpu --from 03:00 --to +30m -o plot",
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
        group=BACK,
        examples=("koordlet report --from 03:00 --to +30m -o incident.html",),
    ),
)

PREDICT = Command(
    "predict",
    "live view: predicted peaks of pods, applications and the node; of one a plot",
    "koordlet.cli.show.predict:main",
    (
        argument(
            "target",
            is_name=True,
            nargs="?",
            default="",
            metavar="POD",
            help="pod (uid or namespace/name), application, or a name of the table",
        ),
        argument(
            "--window",
            type=duration,
            metavar="DURATION",
            help="how far back the plot goes (default: 6h), or the back-test (default: a week)",
        ),
        argument(
            "--back-test",
            action="store_true",
            help="play every model over the history in the store: how often each would have "
            "missed, and how much it would have reserved in vain",
        ),
        argument("--once", action="store_true", help="print once and end"),
        interval(5.0, "two looks", least_s=0.5),
        STATE_DIR,
        OUTPUT,
        CONFIG_IF_ANY,
        SOCKET,
    ),
    group=HERE,
    examples=(
        "koordlet predict --once",
        "koordlet predict web-0 --window 24h",
        "koordlet predict --back-test",
    ),
)
