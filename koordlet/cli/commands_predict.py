"""The command for predicted peaks (see ``commands``)."""

from __future__ import annotations

from koordlet.cli.arguments import (
    CONFIG_IF_ANY,
    OUTPUT,
    SOCKET,
    Command,
    argument,
    duration,
    number_in,
)

PREDICT = Command(
    "predict",
    "live view: predicted peaks of pods, applications and the node; of one a plot",
    "koordlet.cli.show.predict:main",
    (
        argument(
            "target",
            nargs="?",
            default="",
            metavar="POD",
            help="pod (uid or namespace/name), application, or a name of the table",
        ),
        argument(
            "--window",
            type=duration,
            default=21600.0,
            metavar="DURATION",
            help="how far back the plot goes (default: 6h)",
        ),
        argument("--once", action="store_true", help="print once and end"),
        argument(
            "--interval",
            type=number_in(float, 0.5, 3600),
            default=5.0,
            metavar="S",
            help="seconds between two looks (default: 5)",
        ),
        OUTPUT,
        CONFIG_IF_ANY,
        SOCKET,
    ),
)
