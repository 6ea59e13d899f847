"""The part of the table of commands that is about the configuration."""

from __future__ import annotations

from koordlet.cli.arguments import (
    CONFIG_IF_ANY,
    DEFAULT_CONFIG,
    OUTPUT,
    SETTING_UP,
    SOCKET,
    Command,
    argument,
)

CONFIGURATION = Command(
    "config",
    "write, check, show and reload the configuration",
    children=(
        Command(
            "init",
            "write a first configuration from what runs here (works without the daemon)",
            "koordlet.cli.config_init:main",
            (
                argument(
                    "file",
                    nargs="?",
                    default=DEFAULT_CONFIG,
                    metavar="FILE",
                    is_path=True,
                    help=f"where it goes; - prints it (default: {DEFAULT_CONFIG})",
                ),
                argument(
                    "--preset",
                    choices=("web+batch", "database", "kubernetes", "gpu"),
                    help="what the machine is for (default: by what is found)",
                ),
                argument(
                    "--yes",
                    action="store_true",
                    help="ask nothing: take the units whose names tell their class",
                ),
                argument("--force", action="store_true", help="replace FILE"),
            ),
            examples=("koordlet config init --preset database -  # print it",),
        ),
        Command(
            "check",
            "check a configuration file (works without the daemon)",
            "koordlet.cli.config:check",
            (
                argument("file", metavar="FILE", is_path=True),
                argument(
                    "--file-only",
                    action="store_true",
                    help="leave out what this machine makes impossible",
                ),
                OUTPUT,
            ),
            examples=(
                "koordlet config check koordlet.toml  # and what it would do here now",
                "koordlet config check --file-only koordlet.toml",
            ),
        ),
        Command(
            "show",
            "effective values of the daemon and where each came from",
            "koordlet.cli.config:show",
            (OUTPUT, CONFIG_IF_ANY, SOCKET),
            examples=("koordlet config show",),
        ),
        Command(
            "sample",
            "print the annotated sample file (works without the daemon)",
            "koordlet.cli.config:sample",
            examples=("koordlet config sample",),
        ),
        Command(
            "schema",
            "print a JSON schema of the configuration (works without the daemon)",
            "koordlet.cli.config:schema",
            examples=("koordlet config schema > /etc/koordlet/koordlet.schema.json",),
        ),
        Command(
            "reload",
            "make the daemon read its configuration again",
            "koordlet.cli.config:reload",
            (OUTPUT, CONFIG_IF_ANY, SOCKET),
            examples=("koordlet config reload",),
        ),
    ),
    group=SETTING_UP,
)
