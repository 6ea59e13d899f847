"""The part of the table of commands that takes koordlet's hands off the machine."""

from __future__ import annotations

from koordlet.cli.arguments import (
    CONFIG_IF_ANY,
    OUTPUT,
    SOCKET,
    UNDOING,
    Command,
    argument,
    duration,
)

_NAMES = argument(
    "names",
    nargs="*",
    metavar="NAME",
    words="koordlet.views.undo:OWNERS",
    help="strategy or hook; without NAME and --cgroup: everything",
)
_CGROUPS = argument(
    "--cgroup",
    dest="cgroups",
    action="append",
    default=[],
    metavar="PATH",
    is_path=True,
    help="a cgroup with all below it; also a pod (uid or namespace/name) or an application. "
    "May be given several times",
)

UNDO: tuple[Command, ...] = (
    Command(
        "pause",
        "put everything back and write nothing until `koordlet resume`, through reload, restart "
        "and reboot; measuring and deciding go on (works without the daemon)",
        "koordlet.cli.pause:pause",
        (
            _NAMES,
            _CGROUPS,
            argument(
                "--for",
                dest="for_s",
                type=duration,
                metavar="TIME",
                help="resume by itself after this time, such as 30m or 2h",
            ),
            argument("--reason", default="", metavar="TEXT", help="shown wherever the pause is"),
            argument("--list", action="store_true", help="only list what is paused"),
            OUTPUT,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=UNDOING,
        examples=(
            'koordlet pause --for 2h --reason "disk swap"  # everything',
            "koordlet pause cpu-suppress",
            "koordlet pause --list",
        ),
    ),
    Command(
        "resume",
        "end pauses: what was paused is managed again (works without the daemon)",
        "koordlet.cli.pause:resume",
        (_NAMES, _CGROUPS, OUTPUT, CONFIG_IF_ANY, SOCKET),
        group=UNDOING,
        examples=(
            "koordlet resume",
            "koordlet resume cpu-suppress",
        ),
    ),
    Command(
        "restore",
        "put back every value that koordlet has changed. Where a daemon runs this pauses it, as "
        "`koordlet pause` does; without one nothing keeps the next start from writing",
        "koordlet.cli.restore:main",
        (
            argument("--dry-run", action="store_true", help="only show what would be put back"),
            argument(
                "--force",
                action="store_true",
                help="also put back what another process has written since, and what is doubtful "
                "because the journal is damaged; the damage is then forgotten",
            ),
            OUTPUT,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=UNDOING,
        examples=(
            "koordlet restore --dry-run",
            "koordlet restore",
        ),
    ),
)
