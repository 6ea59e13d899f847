"""The part of the table of commands that says what is wrong."""

from __future__ import annotations

from koordlet.cli.arguments import (
    CONFIG_IF_ANY,
    OUTPUT,
    SETTING_UP,
    SOCKET,
    STATE_DIR,
    TIME_HELP,
    WRONG,
    Command,
    argument,
    interval,
    number_in,
)

WRONG_COMMANDS: tuple[Command, ...] = (
    Command(
        "status",
        "what was ended, who waits because of whom, what is armed; and the state of the daemon",
        "koordlet.cli.show.status:main",
        (
            argument(
                "-v",
                "--verbose",
                action="store_true",
                help="the state of every part, at length",
            ),
            OUTPUT,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=WRONG,
        examples=(
            "koordlet status  # twelve lines: who was ended, who waits, what is armed",
            "koordlet status --verbose  # every part of the daemon",
        ),
    ),
    Command(
        "why",
        "what is wrong now, or was at a time: for the node, a service, a batch job (works without "
        "the daemon)",
        "koordlet.cli.show.why:main",
        (
            argument(
                "target",
                nargs="?",
                is_name=True,
                default="",
                metavar="TARGET",
                help="pod, application or cgroup, also the end or the beginning of a name; "
                "without: the node",
            ),
            argument("--at", metavar="TIME", help=f"what was wrong then: {TIME_HELP}"),
            STATE_DIR,
            OUTPUT,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=WRONG,
        examples=(
            "koordlet why  # the node",
            "koordlet why web-0  # a service: does it wait, and because of whom",
            "koordlet why job-1  # a batch job: what holds it back",
            "koordlet why --at 03:12",
            "koordlet why --state-dir /mnt/state-of-a-dead-node",
        ),
    ),
    Command(
        "blame",
        "who makes latency-sensitive work wait, and for what",
        "koordlet.cli.show.blame:main",
        (
            argument(
                "target",
                is_name=True,
                nargs="?",
                default="",
                metavar="POD",
                help="pod (uid or namespace/name) or application; without: all that wait",
            ),
            argument("--once", action="store_true", help="print one table and end"),
            argument(
                "--window",
                type=number_in(float, 1, 3600),
                default=60.0,
                metavar="S",
                help="seconds to look back (default: 60)",
            ),
            interval(2.0, "tables"),
            OUTPUT,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=WRONG,
        examples=(
            "koordlet blame  # all that wait, live",
            "koordlet blame web-0 --once  # of one, with its culprits",
        ),
    ),
    Command(
        "explain",
        "the last decisions about something, with what they looked at (works without the daemon)",
        "koordlet.cli.show.explain:main",
        (
            argument(
                "target",
                is_name=True,
                help="pod (uid or namespace/name), application, container, cgroup, owner or node",
            ),
            argument(
                "--limit",
                type=number_in(int, 1, 1000),
                default=5,
                metavar="N",
                help="decisions shown (default: 5)",
            ),
            STATE_DIR,
            OUTPUT,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=WRONG,
        examples=(
            "koordlet explain web-0  # the only pod whose name is or begins so",
            "koordlet explain cpu-suppress --limit 20",
            "koordlet explain kubepods/besteffort/cpu.cfs_quota_us  # one file",
        ),
    ),
    Command(
        "events",
        "what happened, oldest first (works without the daemon)",
        "koordlet.cli.show.events:main",
        (
            argument(
                "-f",
                "--follow",
                action="store_true",
                help="new events as they come; with --since, the past first",
            ),
            argument(
                "--since",
                metavar="TIME",
                help=f"first time shown: {TIME_HELP}",
            ),
            argument(
                "--kind",
                dest="kinds",
                action="append",
                default=[],
                metavar="KIND",
                words="koordlet.admin.model.events:EventKind",
                help="only such events: decision, eviction, alarm, conflict, refused-input, "
                "workload, config or lifecycle. May be given several times",
            ),
            argument(
                "--subject",
                default="",
                metavar="NAME",
                is_name=True,
                help="only events about a pod or application, or with this text",
            ),
            STATE_DIR,
            OUTPUT,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=WRONG,
        examples=(
            "koordlet events --kind eviction --since 24h",
            "koordlet events --subject web-0 --follow",
            "koordlet events --state-dir /var/lib/koordlet --since 03:00  # without a daemon",
        ),
    ),
)

DOCTOR = Command(
    "doctor",
    "check this machine, the configuration and the daemon (works without the daemon)",
    "koordlet.cli.doctor:main",
    (
        argument("-v", "--verbose", action="store_true", help="every check, at length"),
        OUTPUT,
        CONFIG_IF_ANY,
        SOCKET,
    ),
    group=SETTING_UP,
    examples=(
        "koordlet doctor  # what does not work here, and what to do",
        "koordlet doctor --verbose",
    ),
)
