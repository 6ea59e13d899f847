"""``python -m koordlet.config``: write the sample and docs/configuration.md anew."""

from __future__ import annotations

from pathlib import Path

from koordlet.config.reference import reference
from koordlet.config.sample import sample

HERE = Path(__file__).parent

if __name__ == "__main__":
    (HERE / "koordlet.toml").write_text(sample())
    (HERE.parents[1] / "docs" / "configuration.md").write_text(reference())
