"""What commands are made of, and the arguments that several share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KUBECONFIG_VARIABLE = "KUBECONFIG"


@dataclass(frozen=True)
class Argument:
    """``options`` as for ``ArgumentParser.add_argument``; ``is_path``: a shell completes files."""

    names: tuple[str, ...]
    options: Mapping[str, Any]
    is_path: bool = False


@dataclass(frozen=True)
class Command:
    """``function`` is ``module:name`` of ``f(args: argparse.Namespace) -> int`` (the exit code);
    empty where ``children`` do the work."""

    name: str
    help: str
    function: str = ""
    arguments: tuple[Argument, ...] = ()
    children: tuple[Command, ...] = ()


def argument(*names: str, is_path: bool = False, **options: Any) -> Argument:
    return Argument(names, options, is_path)


KUBECONFIG = argument(
    "--kubeconfig",
    metavar="FILE",
    default="",
    is_path=True,
    help="where the API server is; the word in-cluster: the service account of this pod "
    f"(default: ${KUBECONFIG_VARIABLE}, else the service account, else ~/.kube/config)",
)
CONTEXT = argument(
    "--context", metavar="NAME", default="", help="context of the kubeconfig (default: current)"
)
OUTPUT = argument(
    "-o",
    "--output",
    choices=("table", "json", "yaml"),
    default="table",
    help="table for people; json and yaml have stable keys (default: table)",
)


def files(what: str) -> Argument:
    """``-f``, as often as somebody likes; in ``args.files``."""
    return argument(
        "-f",
        "--file",
        metavar="FILE",
        action="append",
        default=[],
        dest="files",
        is_path=True,
        help=f"{what}; may be given again",
    )


def exit_code(where: str) -> Argument:
    return argument(
        "--exit-code", action="store_true", help=f"end with 1 where {where}, for scripts"
    )


FILES = files("objects in YAML or JSON instead of those of the API server")
CONFIG_NAMESPACE = argument(
    "--config-namespace",
    metavar="NAMESPACE",
    default="koordinator-system",
    help="namespace of the ConfigMap (default: koordinator-system)",
)
CONFIG_NAME = argument(
    "--slo-config-name",
    metavar="NAME",
    default="slo-controller-config",
    help="name of the ConfigMap (default: slo-controller-config)",
)
CLUSTER = (KUBECONFIG, CONTEXT)
CONFIG = (CONFIG_NAMESPACE, CONFIG_NAME)
LOOK = (FILES, OUTPUT, *CLUSTER, *CONFIG)
"""Of commands that only look at objects and the ConfigMap."""
