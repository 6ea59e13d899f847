"""The part of the table of commands that goes over past decisions."""

from __future__ import annotations

from koordlet.cli.arguments import (
    BACK,
    CONFIG_IF_ANY,
    OUTPUT,
    SOCKET,
    TIME_HELP,
    Command,
    argument,
    number_in,
)

SPAN = argument(
    "span",
    metavar="FROM..TO",
    help=f"when, such as 1h..now or 14:00..+30m; each of the two is now, {TIME_HELP}",
)
STATE_DIR = argument(
    "--state-dir",
    metavar="DIR",
    is_path=True,
    help="the state directory of a daemon, or a copy of one (default: that of the daemon that "
    "answers, else paths.state_dir)",
)

PAST: tuple[Command, ...] = (
    Command(
        "replay",
        "make past decisions again: are they the same, or what with other settings (works without "
        "the daemon)",
        "koordlet.cli.replay:main",
        (
            SPAN,
            argument(
                "--verify",
                action="store_true",
                help="with the recorded settings: each must be the same (the default)",
            ),
            argument(
                "--set",
                action="append",
                default=[],
                metavar="KEY=VALUE",
                help="what would differ with this setting, such as "
                "slo.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent=80. "
                "May be given several times",
            ),
            argument(
                "--limit",
                type=number_in(int, 0, 10_000),
                default=20,
                metavar="N",
                help="with --set: differences shown (default: 20); all are counted",
            ),
            STATE_DIR,
            OUTPUT,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=BACK,
        examples=(
            "koordlet replay 1h..now  # are the decisions the same again?",
            "koordlet replay 03:00..+30m --set strategies.cpu-suppress.enable=false",
        ),
    ),
    Command(
        "tune",
        "try values of one parameter on past inputs (works without the daemon)",
        "koordlet.cli.replay:tune_main",
        (
            argument(
                "parameter",
                metavar="STRATEGY.PARAM",
                words="koordlet.replay.parameters:NAMES",
                help="such as cpu-suppress.cpuSuppressThresholdPercent",
            ),
            SPAN,
            argument(
                "--values",
                metavar="LIST",
                help="A,B,C or FROM..TO:STEP (default: some around the one in force)",
            ),
            STATE_DIR,
            OUTPUT,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=BACK,
        examples=(
            "koordlet tune cpu-suppress.cpuSuppressThresholdPercent 24h..now --values 50,60,70",
        ),
    ),
)
