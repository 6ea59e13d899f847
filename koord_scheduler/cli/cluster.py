"""Which API server a command means."""

from __future__ import annotations

import argparse
import os

from koord_scheduler.cli.arguments import KUBECONFIG_VARIABLE
from koordlet.kube.credentials import Cluster, from_kubeconfig, in_cluster
from koordlet.kube.errors import CredentialsError

IN_CLUSTER = "in-cluster"
_HOME = "~/.kube/config"


def cluster_of(args: argparse.Namespace) -> Cluster:
    """Raises CredentialsError with what is missing and where it was looked for."""
    named = args.kubeconfig or os.environ.get(KUBECONFIG_VARIABLE, "")
    if named and named != IN_CLUSTER:
        return from_kubeconfig(named, args.context)
    inside = in_cluster()
    if inside is not None:
        return inside
    if named == IN_CLUSTER:
        text = "this process runs in no pod: KUBERNETES_SERVICE_HOST is not set"
        raise CredentialsError(f"--kubeconfig {IN_CLUSTER}: {text}")
    path = os.path.expanduser(_HOME)
    if os.path.exists(path):
        return from_kubeconfig(path, args.context)
    raise CredentialsError(
        f"no API server: give --kubeconfig FILE, set ${KUBECONFIG_VARIABLE}, or write {_HOME}"
    )
