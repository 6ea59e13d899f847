"""``make demo`` prints what the demo prints, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOISY_SETUP = """\
#!/bin/sh
echo "Collecting grpcio"
mkdir -p "$1/bin"
printf '#!/bin/sh\\nexec python3 -c "import json, sys; print(json.dumps(sys.argv[1:]))" "$@"\\n' \
    > "$1/bin/koordlet"
chmod +x "$1/bin/koordlet"
"""


def test_json_alone(tmp_path: Path) -> None:
    """Also the first time, when it sets itself up."""
    (tmp_path / "tools").mkdir()
    for file in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    setup = tmp_path / "tools" / "setup"
    setup.write_text(NOISY_SETUP)
    setup.chmod(0o755)
    for seen in ("Collecting grpcio", ""):
        done = subprocess.run(
            ["make", "demo", "DEMO_ARGS=-o json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        )
        assert json.loads(done.stdout) == ["demo", "-o", "json"]
        assert done.stdout.count("\n") == 1
        assert seen in done.stderr
