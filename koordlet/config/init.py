"""A first configuration: a preset, with what runs on this machine for its applications."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from importlib.resources import files
from itertools import islice
from typing import NamedTuple

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.kubepods import find
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.state.units import slices, unit_root

PRESETS = ("web+batch", "database", "kubernetes", "gpu")
UNITS = 200
"""Listed at most: nobody answers more questions."""
_APPLICATIONS = "[[applications]]"

_DATABASES = ("postgresql*", "mysql*", "mariadb*", "mongod*", "clickhouse*", "cassandra*", "redis*")
_SERVICES = (
    *_DATABASES,
    *("nginx*", "apache2*", "httpd*", "caddy*", "haproxy*", "envoy*", "traefik*", "varnish*"),
    *("php*-fpm*", "gunicorn*", "uwsgi*", "tomcat*", "valkey*", "memcached*", "rabbitmq*"),
    *("kafka*", "elasticsearch*", "opensearch*", "etcd*", "named*", "unbound*", "dovecot*"),
    *("ollama*", "vllm*", "triton*"),
)
_BATCH = (
    *("*backup*", "*batch*", "restic*", "borg*", "gitlab-runner*", "actions.runner*"),
    *("jenkins-agent*", "buildkit*", "boinc*", "*updatedb*", "man-db*", "apt-daily*", "fstrim*"),
)
# What keeps the machine itself going is nobody's application.
_MACHINE = (
    *("systemd-*", "dbus*", "ssh*", "getty*", "serial-getty*", "console-getty*", "user@*"),
    *("user-runtime-dir@*", "cron*", "rsyslog*", "polkit*", "NetworkManager*", "networking*"),
    *("containerd*", "docker*", "crio*", "kubelet*", "koord*", "chrony*", "ntp*", "snapd*"),
    *("udisks*", "qemu-guest-agent*", "ModemManager*", "accounts-daemon*", "wpa_supplicant*"),
    *("irqbalance*", "multipathd*", "auditd*", "unattended-upgrades*", "init.scope"),
    *("system.slice", "user.slice", "machine.slice", "system-*", "kubepods*", "-.slice"),
)


class Unit(NamedTuple):
    """A unit that runs. ``qos``: LS or BE where its name tells, else empty."""

    name: str
    qos: str


class Machine(NamedTuple):
    """What was found. ``preset``: the one that fits it best."""

    units: tuple[Unit, ...]
    preset: str


def look(host: Host, layout: Layout, cgroup_root: str = "/sys/fs/cgroup") -> Machine:
    """The units of systemd that have processes or are slices, those whose class is known first."""
    root = unit_root(host, layout, cgroup_root)
    names: dict[str, None] = {}
    for cgroup in slices(host, root):
        if cgroup:
            names[cgroup.rpartition("/")[2]] = None
        try:
            below = host.subdirs(f"{root}/{cgroup}" if cgroup else root)
        except OSError:
            continue  # gone while we look
        names.update(dict.fromkeys(name for name in below if name.endswith(".service")))
    units = sorted(
        (Unit(name, _qos(name)) for name in names if _is_plain(name) and not _is(name, _MACHINE)),
        key=lambda unit: (unit.qos == "", unit.qos != "LS", unit.name),
    )
    found = tuple(islice(units, UNITS))
    return Machine(found, _preset(host, layout, found))


def text(preset: str, applications: Sequence[Unit], left_out: Iterable[str] = ()) -> str:
    """The configuration. Without applications those of the preset stand there, commented out."""
    head, _, examples = preset_text(preset).partition(_APPLICATIONS)
    if not applications:
        lines = f"{_APPLICATIONS}{examples}".splitlines() if examples else []
        body = "\n".join(f"#{line}" if line else "" for line in lines)
    else:
        body = "\n".join(_application(unit, name) for unit, name in _named(applications))
    others = [f"# Not taken: {name}" for name in left_out]
    parts = [head.rstrip(), body.rstrip(), "\n".join(others)]
    return "\n\n".join(filter(None, parts)) + "\n"


def preset_text(name: str) -> str:
    return files("koordlet.config").joinpath("presets", f"{name}.toml").read_text()


def _named(units: Iterable[Unit]) -> Iterator[tuple[Unit, str]]:
    """``postgresql@15-main.service`` is called ``postgresql-15-main``, unless another one is."""
    names: set[str] = set()
    for unit in units:
        stem = unit.name.rpartition(".")[0]
        name = re.sub(r"[^A-Za-z0-9.]+", "-", stem).strip("-")
        name = unit.name if not name or name in names else name
        names.add(name)
        yield unit, name


def _application(unit: Unit, name: str) -> str:
    lines = [
        _APPLICATIONS,
        f"name = {json.dumps(name)}",
        f"systemd_unit = {json.dumps(unit.name)}",
        f'qos = "{unit.qos}"',
    ]
    if unit.qos == "BE":
        # docs/tutorial.md: cpu.idle of a unit is systemd's.
        lines += [
            f"# `systemctl set-property {unit.name} CPUWeight=idle` lets it yield at once (systemd",
            "# 252, cgroup v2); koordlet then leaves its weight alone.",
        ]
    return "\n".join((*lines, ""))


def _qos(unit: str) -> str:
    return "BE" if _is(unit, _BATCH) else "LS" if _is(unit, _SERVICES) else ""


def _is_plain(name: str) -> bool:
    """systemd writes anything else in unit names as an escape; another one is nobody's unit."""
    return name.isascii() and name.isprintable()


def _is(unit: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(unit, pattern) for pattern in patterns)


def _preset(host: Host, layout: Layout, units: Iterable[Unit]) -> str:
    if find(Cgroups(host, layout), "") is not None:
        return "kubernetes"
    if host.exists("/dev/nvidiactl") or host.exists("/dev/kfd"):
        return "gpu"
    services = [unit.name for unit in units if unit.qos == "LS"]
    if services and all(_is(name, _DATABASES) for name in services):
        return "database"
    return "web+batch"
