"""Options of ``koord-scheduler run`` that admission alone reads."""

from __future__ import annotations

import argparse

from koord_scheduler.admission.words import GATE_FIELDS, Gates, gates_from
from koord_scheduler.cli.arguments import argument

GATES = argument(
    "--feature-gates",
    metavar="LIST",
    default="",
    help=f"Gate=true,Gate=false ...; there are: {', '.join(GATE_FIELDS)}",
)
ADMISSION = (
    GATES,
    argument(
        "--webhook-addr",
        metavar="ADDRESS",
        default=":9876",
        help="HOST:PORT of the webhooks (default: :9876)",
    ),
    argument(
        "--webhook-service",
        metavar="NAME",
        default="koordinator-webhook-service",
        help="Service by which the API server finds them (default: koordinator-webhook-service)",
    ),
    argument(
        "--webhook-url",
        metavar="URL",
        default="",
        help="where the API server finds them instead, such as https://127.0.0.1:9876",
    ),
    argument(
        "--webhook-cert-dir",
        metavar="DIRECTORY",
        default="",
        is_path=True,
        help="with tls.crt, tls.key and, if callers should be told, ca.crt; by default certificates"
        " are made here and kept in the Secret koordinator-webhook-certs",
    ),
    argument(
        "--webhook-client-ca",
        metavar="FILE",
        default="",
        is_path=True,
        help="authorities of the certificates that API servers show (PEM); who shows one goes"
        " before everybody else",
    ),
    argument(
        "--webhook-failure-policy",
        choices=("Fail", "Ignore"),
        default="Fail",
        help="what happens to pods while no webhook answers: Fail refuses them, Ignore lets them "
        "through as they are (default: Fail)",
    ),
    argument(
        "--node-strategy-name-need-check",
        action="store_true",
        help="node entries of slo-controller-config need names of their own",
    ),
    argument(
        "--colocation-profile-reconcile-by-default",
        action="store_true",
        help="every profile counts for pods that exist already, with its label or without",
    ),
    argument(
        "--binding-admission-user-name",
        metavar="LIST",
        default="",
        help="parts of the names of users who may bind pods; empty: everybody may",
    ),
    argument(
        "--binding-admission-namespaces",
        metavar="LIST",
        default="",
        help="where that is enforced; * everywhere",
    ),
    argument(
        "--binding-admission-exclude-namespaces",
        metavar="LIST",
        default="kube-system",
        help="where it is not (default: kube-system)",
    ),
    argument(
        "--binding-admission-bypass-labels",
        metavar="LIST",
        default="koordinator.sh/binding-admission-bypass",
        help="labels of pods that everybody may bind",
    ),
    argument(
        "--binding-admission-bypass-annotations",
        metavar="LIST",
        default="",
        help="annotations of pods that everybody may bind",
    ),
    argument(
        "--binding-admission-dry-run",
        action="store_true",
        help="refuse no binding; warn",
    ),
)


def check_admission(args: argparse.Namespace) -> Gates:
    """Raises ValueError with the option that cannot be used."""
    try:
        gates = gates_from(args.feature_gates)
    except ValueError as error:
        raise ValueError(f"--feature-gates: {error}") from None
    from koord_scheduler.services.http import parse_address  # loads aiohttp, which --help does not

    try:
        parse_address(args.webhook_addr)
    except ValueError as error:
        raise ValueError(f"--webhook-addr: {error}") from None
    if args.webhook_client_ca:
        import ssl

        try:
            ssl.create_default_context(cafile=args.webhook_client_ca)
        except OSError as error:
            raise ValueError(f"--webhook-client-ca {args.webhook_client_ca}: {error}") from None
    if args.webhook_url and not args.webhook_url.startswith("https://"):
        raise ValueError(f"--webhook-url {args.webhook_url}: the API server asks over https alone")
    return gates
