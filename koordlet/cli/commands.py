"""The table of commands: parser, help, completion and dispatch all come from it.

Nothing heavy is imported here, so that ``koordlet --help`` is quick: a command's function is
named, and imported when it runs.
"""

from __future__ import annotations

from koordlet.cli.arguments import (
    CONFIG,
    CONFIG_IF_ANY,
    DEFAULT_HOOK_CONFIG_DIR,
    DEFAULT_PROXY_SOCKET,
    DEFAULT_RUNTIME_SOCKET,
    HERE,
    OUTPUT,
    PROCESSES,
    PROXY_STATUS,
    SETTING_UP,
    SOCKET,
    STATE_DIR,
    TIME_HELP,
    Command,
    argument,
    interval,
    number_in,
)
from koordlet.cli.commands_config import CONFIGURATION
from koordlet.cli.commands_history import HISTORY, PREDICT
from koordlet.cli.commands_past import PAST
from koordlet.cli.commands_undo import UNDO
from koordlet.cli.commands_wrong import DOCTOR, WRONG_COMMANDS

COMMANDS: tuple[Command, ...] = (
    Command(
        "run",
        "run the daemon in the foreground",
        "koordlet.cli.process.lean:main",
        (
            CONFIG,
            argument(
                "--observe",
                action="store_true",
                help="write nothing, show everything that would be written",
            ),
        ),
        group=PROCESSES,
        examples=("koordlet run --observe  # decide and show, write nothing",),
    ),
    Command(
        "demo",
        "show on this machine what koordlet does for a latency-sensitive service",
        "koordlet.cli.demo:main",
        (
            argument(
                "--seconds",
                type=float,
                default=3.0,
                metavar="N",
                help="length of one slice (default: 3, the first second is not measured)",
            ),
            argument(
                "--slices",
                type=int,
                default=8,
                metavar="N",
                help="slices of each arm, in random order (default: 8)",
            ),
            argument("--seed", type=int, default=1, metavar="N", help="of that order and the load"),
            argument(
                "--arms",
                default="alone,unmanaged,managed",
                metavar="LIST",
                help=(
                    "which arms, comma-separated (default: alone,unmanaged,managed; besides: "
                    "daemon-only, idle-only, idle+quota, idle+cpuset, which take it apart)"
                ),
            ),
            argument(
                "--rate", type=float, metavar="N", help="requests per second of the LS service"
            ),
            argument(
                "--report",
                metavar="FILE",
                default="demo-report.html",
                is_path=True,
                help="where the HTML report goes (default: demo-report.html)",
            ),
            argument(
                "--svg",
                metavar="DIR",
                is_path=True,
                help="also the story as pictures, demo-light.svg and demo-dark.svg",
            ),
            argument(
                "--simulate",
                action="store_true",
                help="on the fake kernel, without root: a simulation",
            ),
            argument(
                "-o",
                "--output",
                choices=("table", "json"),
                default="table",
                help="table for people, json for scripts",
            ),
            argument(
                "--latencies",
                action="store_true",
                help="with -o json: every single request, too",
            ),
        ),
        group=PROCESSES,
        examples=("koordlet demo --simulate  # without root, on the fake kernel",),
    ),
    Command(
        "pods",
        "pods and applications with their usage",
        "koordlet.cli.show.pods:main",
        (
            argument(
                "--names", action="store_true", help="only the names, one a line, for completion"
            ),
            OUTPUT,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=HERE,
        examples=(
            "koordlet pods",
            "koordlet pods -o json | jq .[].name",
        ),
    ),
    Command(
        "top",
        "live view: node, classes, pods, pressure, last decisions",
        "koordlet.cli.show.top:main",
        (
            argument("--once", action="store_true", help="print one frame and end"),
            argument(
                "--at",
                metavar="TIME",
                help=f"what it would have shown then: {TIME_HELP}; the keys [ and ] step",
            ),
            interval(1.0, "frames, and between steps in the past"),
            argument(
                "--processes",
                type=number_in(int, 0, 50),
                default=5,
                metavar="N",
                help='biggest processes of "system" shown (default: 5; 0: none)',
            ),
            OUTPUT,
            STATE_DIR,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=HERE,
        examples=(
            "koordlet top",
            "koordlet top --at 03:12  # as it was then",
            "koordlet top --once --processes 0",
        ),
    ),
    *WRONG_COMMANDS,
    *HISTORY,
    *PAST,
    Command(
        "hooks",
        "what each hook would do to a pod, when, and what it needs of the kernel",
        "koordlet.cli.show.hooks:main",
        (
            argument(
                "target",
                nargs="?",
                is_name=True,
                default="",
                metavar="POD",
                help="pod (uid or namespace/name) or application; without: all hooks",
            ),
            argument(
                "-f",
                "--file",
                metavar="FILE",
                is_path=True,
                help="a pod in YAML or JSON instead, without runtime and daemon",
            ),
            argument(
                "--no-probe",
                action="store_true",
                help="without the daemon: take every kernel feature as there, try none",
            ),
            OUTPUT,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=HERE,
        examples=(
            "koordlet hooks web-0  # what each would do to it",
            "koordlet hooks -f pod.yaml  # of a pod that is not here",
        ),
    ),
    Command(
        "strategies",
        "what each strategy does at present, or why it does nothing and what would change that",
        "koordlet.cli.show.strategies:main",
        (
            argument(
                "name",
                nargs="?",
                default="",
                metavar="NAME",
                words="koordlet.views.standings:NAMES",
                help="one strategy at length, with its arguments; without: all",
            ),
            OUTPUT,
            CONFIG_IF_ANY,
            SOCKET,
        ),
        group=HERE,
        examples=(
            "koordlet strategies  # which do something, and why the others do not",
            "koordlet strategies cpu-suppress",
        ),
    ),
    PREDICT,
    Command(
        "devices",
        "GPUs, other accelerators and RDMA devices: health, use, and by whom",
        "koordlet.cli.show.devices:main",
        (OUTPUT, CONFIG_IF_ANY, SOCKET),
        group=HERE,
        examples=("koordlet devices",),
    ),
    Command(
        "runtime-proxy",
        "run the CRI proxy, in front of a container runtime without NRI",
        "koordlet.cli.process.proxy:run",
        (
            argument(
                "--koord-runtimeproxy-endpoint",
                metavar="PATH",
                default=DEFAULT_PROXY_SOCKET,
                is_path=True,
                help=f"where kubelet comes (default: {DEFAULT_PROXY_SOCKET}); not with a socket "
                "of systemd",
            ),
            argument(
                "--remote-runtime-service-endpoint",
                metavar="PATH",
                default=DEFAULT_RUNTIME_SOCKET,
                is_path=True,
                help=f"socket of the container runtime (default: {DEFAULT_RUNTIME_SOCKET})",
            ),
            argument(
                "--backend-runtime-mode",
                metavar="MODE",
                default="Containerd",
                help="Containerd, which stands for every runtime with CRI",
            ),
            argument(
                "--runtime-hook-server-key",
                metavar="LABEL",
                default="runtimeproxy.koordinator.sh/skip-hookserver",
                help="pods with this label are passed through without hooks (default: "
                "runtimeproxy.koordinator.sh/skip-hookserver)",
            ),
            argument(
                "--runtime-hook-server-val",
                metavar="VALUE",
                default="true",
                help="the value that the label must have (default: true)",
            ),
            argument(
                "--hook-config-dir",
                metavar="DIRECTORY",
                default=DEFAULT_HOOK_CONFIG_DIR,
                is_path=True,
                help=f"files that name the hook servers (default: {DEFAULT_HOOK_CONFIG_DIR})",
            ),
            argument(
                "--hook-timeout",
                type=number_in(float, 0.01, 60),
                default=1.0,
                metavar="S",
                help="time budget of a call to a hook server, in seconds (default: 1)",
            ),
            PROXY_STATUS,
        ),
        group=PROCESSES,
        examples=("koordlet runtime-proxy --hook-timeout 0.5",),
    ),
    Command(
        "proxy",
        "the CRI proxy",
        children=(
            Command(
                "status",
                "calls, changes, failures and added latency of the CRI proxy, per method",
                "koordlet.cli.process.proxy:status",
                (OUTPUT, PROXY_STATUS),
                examples=("koordlet proxy status",),
            ),
        ),
        group=HERE,
    ),
    Command(
        "nri",
        "the connection to the container runtime",
        children=(
            Command(
                "status",
                "connection, events, errors and latency of the NRI plugin in the daemon",
                "koordlet.cli.show.nri:status",
                (OUTPUT, CONFIG_IF_ANY, SOCKET),
                examples=("koordlet nri status",),
            ),
        ),
        group=HERE,
    ),
    Command(
        "io",
        "block devices",
        children=(
            Command(
                "measure",
                "measure a disk for the kernel's cost model (works without the daemon)",
                "koordlet.cli.io:main",
                (
                    argument("device", metavar="DEVICE", is_path=True, help="disk, such as vda"),
                    argument(
                        "--directory",
                        metavar="DIR",
                        is_path=True,
                        help="on that disk: read and write a file without a name, not the device",
                    ),
                    argument(
                        "--seconds",
                        type=number_in(float, 0.1, 60),
                        default=5.0,
                        metavar="N",
                        help="for each of the figures (default: 5)",
                    ),
                    argument(
                        "--size",
                        type=number_in(int, 16, 65536),
                        default=1024,
                        metavar="MIB",
                        help="of the file (default: 1024)",
                    ),
                    OUTPUT,
                ),
                examples=("koordlet io measure vda --directory /var/lib",),
            ),
        ),
        group=SETTING_UP,
    ),
    DOCTOR,
    *UNDO,
    CONFIGURATION,
    Command(
        "completion",
        "print a completion script for a shell",
        "koordlet.cli.completion:main",
        (argument("shell", choices=("bash", "fish", "tcsh", "zsh")),),
        group=SETTING_UP,
        examples=("koordlet completion bash > /etc/bash_completion.d/koordlet",),
    ),
)
