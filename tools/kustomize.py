"""Writes what in ``deploy/`` is made of other files there: the alert rules as an object of the
Prometheus operator, and the definitions that ``kustomization.yaml`` names. With ``--check``, fails
where a file differs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

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


def files() -> Iterator[tuple[Path, str]]:
    yield DEPLOY / "observability" / "rules.yaml", rules()
    yield DEPLOY / "kustomization.yaml", kustomization()


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
