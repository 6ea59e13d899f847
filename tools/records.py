"""Write tables and picture that come from the records of benches anew; `make docs` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the benches are not installed

from bench.ladder import LADDERS, ladder  # noqa: E402
from bench.recording import records  # noqa: E402
from bench.report import PAGES_WITH_RECORDS, filled  # noqa: E402


def main() -> int:
    for page in PAGES_WITH_RECORDS:
        path = ROOT / page
        path.write_text(filled(path.read_text()))
    for name, palette in LADDERS.items():
        (ROOT / "docs" / "images" / name).write_text(ladder(records(), palette))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
