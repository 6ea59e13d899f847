"""Writes ``deploy/observability/rules.yaml``, the alert rules as an object of the Prometheus
operator, from ``alerts.yaml``. With ``--check``, fails where it differs."""

from __future__ import annotations

import sys
from pathlib import Path

OBSERVABILITY = Path(__file__).parent.parent / "deploy" / "observability"
_HEAD = """\
# Written by tools/rules.py from alerts.yaml; `make chart` writes it anew.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: koordlet
  namespace: koordinator-system
spec:
"""


def text() -> str:
    lines = (OBSERVABILITY / "alerts.yaml").read_text().splitlines()
    return _HEAD + "".join(f"  {line}".rstrip() + "\n" for line in lines)


def main() -> int:
    path = OBSERVABILITY / "rules.yaml"
    if "--check" not in sys.argv:
        path.write_text(text())
        return 0
    if path.exists() and path.read_text() == text():
        return 0
    print(f"{path}: differs from alerts.yaml; run make chart", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
