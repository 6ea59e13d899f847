"""``koord-scheduler run``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Any

import structlog

from koord_scheduler.admission.words import GATE_FIELDS, switched
from koord_scheduler.cli.admission import check_admission
from koord_scheduler.cli.cluster import cluster_of
from koord_scheduler.cli.errors import WrongUseError
from koord_scheduler.cli.watching import watching_of
from koord_scheduler.daemon.controller import SCHEDULER, Options
from koord_scheduler.daemon.parts import UnknownPartError, chosen
from koord_scheduler.daemon.process import run
from koord_scheduler.daemon.yarn import Setup
from koord_scheduler.services.http import parse_address
from koord_scheduler.sinks.yarn_client import Access, parse_managers

if TYPE_CHECKING:
    from koord_scheduler.daemon.scheduler.setup import Setup as SchedulerSetup

_LONGEST_TIMEOUT_S = 86_400


def main(args: argparse.Namespace) -> int:
    options = _options(args)
    try:
        parts = chosen(_words(args.roles), options.controllers)
    except UnknownPartError as error:
        raise WrongUseError(str(error)) from None
    if not parts:
        raise WrongUseError(f"--controllers {args.controllers}: leaves nothing to run")
    cluster = cluster_of(args)
    configure_log(args.log_level)
    log = structlog.get_logger()
    log.info("starts", server=cluster.server, parts=",".join(part.name for part in parts))
    asyncio.run(run(cluster, options, parts))
    log.info("ended")
    return 0


def _options(args: argparse.Namespace) -> Options:
    for address in (args.metrics_addr, args.health_probe_addr):
        try:
            parse_address(address)
        except ValueError as error:
            raise WrongUseError(str(error)) from None
    if args.rest_config_qps <= 0 or args.rest_config_burst < 1:
        raise WrongUseError("--rest-config-qps must be more than 0, --rest-config-burst at least 1")
    controllers = _words(args.controllers)
    try:
        # The reference switches this one on by its gate.
        if check_admission(args).colocation_profile_controller:
            controllers = (*controllers, "colocationprofile")
    except ValueError as error:
        raise WrongUseError(str(error)) from None
    try:
        watching = watching_of(args)
    except ValueError as error:
        raise WrongUseError(str(error)) from None
    scheduler = _setup(args)
    return Options(
        controllers=controllers,
        config_namespace=args.config_namespace,
        config_name=args.slo_config_name,
        elect=not args.no_leader_election,
        lease_namespace=args.leader_election_namespace,
        metrics_address=args.metrics_addr,
        health_address=args.health_probe_addr,
        requests_per_s=args.rest_config_qps,
        requests_burst=args.rest_config_burst,
        **(_bindings(scheduler) if scheduler is not None else {}),
        extra={
            **vars(args),
            "yarn": _yarn(args),
            "scheduler": scheduler,
            "watching": watching,
        },
    )


def _setup(args: argparse.Namespace) -> SchedulerSetup | None:
    """None without the role; numpy and the plugins then stay out of memory."""
    if SCHEDULER not in _words(args.roles):
        return None
    from koord_scheduler.daemon.scheduler.setup import SetupError, load

    try:
        return load(args.config, switched(args.feature_gates, GATE_FIELDS))
    except SetupError as error:
        raise WrongUseError(f"--config {error}") from None


def _bindings(setup: SchedulerSetup) -> dict[str, Any]:
    given = {"bindings_per_s": setup.bindings_per_s, "bindings_burst": setup.bindings_burst}
    return {name: value for name, value in given.items() if value is not None}


def _yarn(args: argparse.Namespace) -> Setup:
    try:
        managers = parse_managers(args.yarn_resource_manager)
    except ValueError as error:
        raise WrongUseError(f"--yarn-resource-manager {error}") from None
    timeout_s = args.yarn_over_commit_timeout
    if not -1 <= timeout_s <= _LONGEST_TIMEOUT_S:
        raise WrongUseError(f"--yarn-over-commit-timeout must be -1 to {_LONGEST_TIMEOUT_S}")
    access = Access(args.yarn_user, args.yarn_token_file, args.yarn_ca_file)
    timeout_ms = timeout_s * 1000 if timeout_s >= 0 else -1
    return Setup(managers, access, args.yarn_namespace, timeout_ms)


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip() for each in text.split(","))))


def configure_log(level: str) -> None:
    """``key=value`` to stderr, one line an event, whatever stands in a name or a message."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _plain,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], bool_as_flag=False
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


_MOST_CHARACTERS = 4000


def _plain(
    _logger: object, _method: str, line: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    for key, value in line.items():
        if isinstance(value, str):
            cut = value[:_MOST_CHARACTERS]
            printable = cut.isprintable()
            line[key] = cut if printable else cut.encode("unicode_escape").decode("ascii")
    return line
