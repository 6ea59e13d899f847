"""Commands of the change from Koordinator, and of its configuration files."""

from __future__ import annotations

from koord_scheduler.cli.arguments import CLUSTER, OUTPUT, Command, argument

SWITCHING: tuple[Command, ...] = (
    Command(
        "switch",
        "change over from Koordinator's components to ours, object by object, or back",
        "koord_scheduler.cli.switching.main:main",
        (
            argument(
                "--from",
                dest="origin",
                metavar="NAME",
                required=True,
                help="what is installed: koordinator",
            ),
            argument("--dry-run", action="store_true", help="only say what would be done"),
            argument(
                "--apply",
                action="store_true",
                help="do it; given again after an interruption, it goes on from there",
            ),
            argument(
                "--back",
                action="store_true",
                help="go back to what was there; with --dry-run, say how",
            ),
            argument(
                "--roles",
                metavar="LIST",
                default="",
                help="comma-separated: agent, manager, scheduler, descheduler (default: all that "
                "are installed)",
            ),
            argument(
                "--image",
                metavar="IMAGE",
                default="",
                help="image of ours (default: that of the files)",
            ),
            argument(
                "--deploy",
                metavar="DIRECTORY",
                default="",
                is_path=True,
                help="directory with our objects, as deploy/ of a checkout (default: as installed)",
            ),
            OUTPUT,
            *CLUSTER,
        ),
    ),
    Command(
        "config",
        "configuration files",
        children=(
            Command(
                "check",
                "whether a KubeSchedulerConfiguration, a DeschedulerConfiguration or the ConfigMap "
                "slo-controller-config is accepted, and what is wrong with it where it is not",
                "koord_scheduler.cli.config_check:main",
                (
                    argument(
                        "files",
                        metavar="FILE",
                        nargs="+",
                        help="in YAML or JSON; a ConfigMap may hold any of them",
                    ),
                    OUTPUT,
                ),
            ),
        ),
    ),
)
