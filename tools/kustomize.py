"""Writes what in ``deploy/`` is made of other files there: the alert rules as an object of the
Prometheus operator, the definitions that ``kustomization.yaml`` names, and the overlay that stands
beside an installation of Koordinator. With ``--check``, fails where a file differs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from koord_scheduler.cli.switching.names import OURS, PARKED, PARKED_VALUE, THEIR_LABEL

DEPLOY = Path(__file__).parent.parent / "deploy"
_RULES = """\
# Written by tools/kustomize.py from alerts.yaml; `make deploy` writes it anew.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: koordlet
  namespace: koordinator-system
spec:
"""
_DEFINITION = "  - crds/"
_SHARED = "koordinator-webhook-service"
_SWITCHED = (
    "# Written by tools/kustomize.py from the files of deploy/; `make deploy` writes it anew.\n"
)


def rules() -> str:
    lines = (DEPLOY / "observability" / "alerts.yaml").read_text().splitlines()
    return _RULES + "".join(f"  {line}".rstrip() + "\n" for line in lines)


def kustomization() -> str:
    """As it is, with all definitions where the first one stands."""
    lines = (DEPLOY / "kustomization.yaml").read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(_DEFINITION))
    others = [line for line in lines if not line.startswith(_DEFINITION)]
    names = sorted(each.name for each in (DEPLOY / "crds").glob("*.yaml"))
    others[first:first] = [f"{_DEFINITION}{name}" for name in names]
    return "\n".join(others) + "\n"


def switched(role: str) -> str:
    """Objects of one role under names of their own, because a selector cannot be changed; without
    what both have: the namespace, priority classes, definitions, and the Service of the webhooks.
    """
    directory = DEPLOY / ("koordlet" if role == "agent" else role)
    found = []
    for path in sorted(directory.glob("*.yaml")):
        if path.name != "kustomization.yaml":
            found += [each for each in yaml.safe_load_all(path.read_text()) if each]
    kept = [_beside(each, role) for each in found if each["metadata"]["name"] != _SHARED]
    return _SWITCHED + yaml.safe_dump_all(kept, sort_keys=False, width=100)


def _beside(each: dict[str, Any], role: str) -> dict[str, Any]:
    if each["kind"] not in ("Deployment", "DaemonSet"):
        return each
    each["metadata"]["name"] = OURS[role]
    if each["kind"] == "DaemonSet":
        # Never two agents on one node: where theirs shall run, ours does not; where theirs still
        # is, ours waits; and the scheduler lets no pod of theirs in while ours is there.
        parked = {"key": PARKED, "operator": "NotIn", "values": [PARKED_VALUE]}
        terms = [{"matchExpressions": [parked]}]
        other = {"matchLabels": {THEIR_LABEL: "koordlet"}}
        each["spec"]["template"]["spec"]["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": other, "topologyKey": "kubernetes.io/hostname"}
                ]
            },
        }
    return each


def files() -> Iterator[tuple[Path, str]]:
    yield DEPLOY / "observability" / "rules.yaml", rules()
    yield DEPLOY / "kustomization.yaml", kustomization()
    for role in OURS:
        yield DEPLOY / "switch" / f"{role}.yaml", switched(role)


def main() -> int:
    differing = []
    for path, text in files():
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            differing.append(path)
    for path in differing:
        print(f"{path}: is out of date; run make deploy", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
