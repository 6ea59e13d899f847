"""Writes the templates and ``values.yaml`` of the Helm chart in ``deploy/chart/`` from the files
that kustomize applies, so that both deploy the same. With ``--check``, fails where a file differs.

A template is the file as it is, with the value of some keys taken from ``values.yaml`` (`SLOTS`),
which gets what stood there. Definitions, alert rules and the dashboard are links. The namespace is
no value, because the protocol has it: that is where everybody looks for slo-controller-config.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

DEPLOY = Path(__file__).parent.parent / "deploy"
CHART = DEPLOY / "chart"
_HEAD = "written by tools/chart.py; `make deploy` writes it anew."


class Slot(NamedTuple):
    """``key`` of the file, which stands there exactly once with this indentation (in columns), is
    value ``value`` of the chart. ``about`` is said in values.yaml."""

    file: str
    indent: int
    key: str
    value: str
    about: str = ""


SLOTS = (
    Slot("koordlet/daemonset.yaml", 10, "image", "image", "For koordlet and the companion."),
    Slot("koordlet/daemonset.yaml", 10, "imagePullPolicy", "imagePullPolicy"),
    Slot(
        "koordlet/config.yaml",
        2,
        "koordlet.toml",
        "koordlet.config",
        "`koordlet config sample` prints every key.",
    ),
    Slot("koordlet/daemonset.yaml", 10, "resources", "koordlet.resources"),
    Slot("koordlet/daemonset.yaml", 6, "tolerations", "koordlet.tolerations"),
    Slot("koordlet/daemonset.yaml", 6, "nodeSelector", "koordlet.nodeSelector"),
    Slot("koordlet/daemonset.yaml", 2, "updateStrategy", "koordlet.updateStrategy"),
    Slot("manager/deployment.yaml", 10, "image", "image"),
    Slot("manager/deployment.yaml", 10, "imagePullPolicy", "imagePullPolicy"),
    Slot("manager/deployment.yaml", 2, "replicas", "manager.replicas"),
    Slot("manager/deployment.yaml", 10, "args", "manager.args", "`koord-scheduler run --help`."),
    Slot("manager/deployment.yaml", 10, "resources", "manager.resources"),
    Slot("manager/deployment.yaml", 6, "tolerations", "manager.tolerations"),
    Slot("manager/deployment.yaml", 6, "nodeSelector", "manager.nodeSelector"),
    Slot(
        "network-policy/manager.yaml",
        6,
        "from",
        "networkPolicy.controlPlane",
        "The addresses of the API servers: put yours here.",
    ),
    *(
        slot
        for role in ("scheduler", "descheduler")
        for slot in (
            Slot(f"{role}/deployment.yaml", 10, "image", "image"),
            Slot(f"{role}/deployment.yaml", 10, "imagePullPolicy", "imagePullPolicy"),
            Slot(f"{role}/deployment.yaml", 2, "replicas", f"{role}.replicas"),
            Slot(f"{role}/deployment.yaml", 10, "args", f"{role}.args"),
            Slot(f"{role}/deployment.yaml", 10, "resources", f"{role}.resources"),
            Slot(f"{role}/deployment.yaml", 6, "tolerations", f"{role}.tolerations"),
            Slot(f"{role}/deployment.yaml", 6, "nodeSelector", f"{role}.nodeSelector"),
        )
    ),
)
SWITCHES = {
    "manager": ("manager.enabled", True, "The central companion."),
    "scheduler": ("scheduler.enabled", True, "For pods whose schedulerName is koord-scheduler."),
    "descheduler": ("descheduler.enabled", False, "Moves pods to other nodes."),
    "network-policy": (
        "networkPolicy.enabled",
        False,
        "Lets nobody but networkPolicy.controlPlane to the webhooks.",
    ),
    "observability": (
        "observability.enabled",
        False,
        "Needs the definitions of the Prometheus operator.",
    ),
    "priorityclasses.yaml": ("priorityClasses", True, "False where a cluster has them already."),
}
"""File or directory -> its switch, what that is at first, and what is said about it."""
_DASHBOARD = f"""\
{{{{- /* The dashboard of deploy/observability; {_HEAD} */}}}}
{{{{- if .Values.observability.enabled }}}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: koordlet-dashboard
  namespace: koordinator-system
  labels:
    grafana_dashboard: "1"
data:
  koordlet.json: |
{{{{ .Files.Get "files/dashboard.json" | indent 4 }}}}
{{{{- end }}}}
"""
_LEFT_OUT = frozenset(("namespace.yaml", "crds"))
"""Helm makes the one by --create-namespace, and has the other as a link to deploy/crds."""


def sources() -> list[str]:
    """What the chart is made of, relative to ``deploy/``."""
    found = []
    for directory in ("", "descheduler", "network-policy", "observability"):
        path = DEPLOY / directory / "kustomization.yaml"
        named = yaml.safe_load(path.read_text())["resources"]
        found += [f"{directory}/{each}" if directory else each for each in named]
    return [each for each in found if each.partition("/")[0] not in _LEFT_OUT]


def template(name: str) -> tuple[str, dict[str, Any]]:
    """The template of one source and what its values are there."""
    lines = (DEPLOY / name).read_text().splitlines()
    values: dict[str, Any] = {}
    if name == "observability/rules.yaml":
        at = lines.index("spec:")
        lines = [*lines[:at], "spec:", '{{ .Files.Get "files/alerts.yaml" | indent 2 }}']
    elif any("{{" in line for line in lines):
        raise ValueError(f"{name}: has braces that Helm would take for its own")
    for slot in SLOTS:
        if slot.file == name:
            lines, values[slot.value] = _filled(name, lines, slot)
    text = "\n".join(lines)
    switch = SWITCHES.get(name) or SWITCHES.get(name.partition("/")[0])
    if switch is not None:
        text = f"{{{{- if .Values.{switch[0]} }}}}\n{text}\n{{{{- end }}}}"
    return f"{{{{- /* deploy/{name}; {_HEAD} */}}}}\n{text}\n", values


def _filled(name: str, lines: list[str], slot: Slot) -> tuple[list[str], Any]:
    head = f"{' ' * slot.indent}{slot.key}:"
    at = [i for i, line in enumerate(lines) if line == head or line.startswith(f"{head} ")]
    if len(at) != 1:
        raise ValueError(f"{name}: {slot.key!r} stands {len(at)} times at column {slot.indent}")
    begin = at[0]
    end = begin + 1
    while end < len(lines) and (not lines[end] or _indent(lines[end]) > slot.indent):
        end += 1
    default = yaml.safe_load("\n".join([*lines[begin:end], ""]))[slot.key]
    path, deeper = f".Values.{slot.value}", slot.indent + 2
    if isinstance(default, str) and "\n" in default:
        new = [f"{head} |", f"{{{{ {path} | trim | indent {deeper} }}}}"]
    elif isinstance(default, dict | list):
        new = [head, f"{{{{ toYaml {path} | indent {deeper} }}}}"]
    else:
        new = [f"{head} {{{{ {path}{' | quote' if isinstance(default, str) else ''} }}}}"]
    return [*lines[:begin], *new, *lines[end:]], default


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def files() -> Iterator[tuple[Path, str]]:
    """All that is written: path, text."""
    values: dict[str, Any] = {}
    for name in sources():
        text, found = template(name)
        yield CHART / "templates" / name.replace("/", "-"), text
        for key, value in found.items():
            if values.setdefault(key, value) != value:
                raise ValueError(f"{name}: {key} is {value!r}, and {values[key]!r} elsewhere")
    yield CHART / "templates" / "observability-dashboard.yaml", _DASHBOARD
    values |= {key: default for key, default, _ in SWITCHES.values()}
    yield CHART / "values.yaml", _values(values)


def _values(values: dict[str, Any]) -> str:
    """``values``: by dotted key. Each with what is said about it."""
    abouts = {slot.value: slot.about for slot in SLOTS if slot.about}
    abouts |= {key: about for key, _, about in SWITCHES.values()}
    blocks: dict[str, list[str]] = {}
    for key, value in sorted(values.items()):
        top, _, rest = key.partition(".")
        lines = [f"# {abouts[key]}"] if key in abouts else []
        lines += yaml.dump({rest or top: value}, Dumper=_Dumper, sort_keys=False).splitlines()
        if rest:
            lines = [f"  {line}" if line else line for line in lines]
            blocks.setdefault(top, [f"{top}:"]).extend(lines)
        else:
            blocks[top] = lines
    return f"# {_HEAD[:1].upper()}{_HEAD[1:]}\n" + "".join(
        "\n".join(block) + "\n" for _, block in sorted(blocks.items())
    )


def main() -> int:
    differing, written = [], set()
    for path, text in files():
        written.add(path)
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            differing.append(path)
    for path in set((CHART / "templates").iterdir()) - written - {CHART / "templates/NOTES.txt"}:
        if "--check" in sys.argv:
            differing.append(path)
        else:
            path.unlink()
    for path in differing:
        print(f"{path}: differs from deploy/; run make deploy", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
