"""The command for predicted peaks (see ``commands``)."""

from __future__ import annotations

from koordlet.cli.arguments import (
    CONFIG_IF_ANY,
    OUTPUT,
    SOCKET,
    STATE_DIR,
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
        argument(
            "--interval",
            type=number_in(float, 0.5, 3600),
            default=5.0,
            metavar="S",
            help="seconds between two looks (default: 5)",
        ),
        STATE_DIR,
        OUTPUT,
        CONFIG_IF_ANY,
        SOCKET,
    ),
)
