"""Generate the stubs from proto/: `make proto`. An argument names another root to write to, which
the drift check uses."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent.parent

# Python package -> (folder of its sources, file -> whether it is spoken over gRPC).
PACKAGES = {
    "koordlet/admin/pb": ("proto/koordlet/admin/v1", {"admin.proto": True}),
    "koordlet/wire/pb": (
        "proto/peers",
        {
            "cri.proto": True,
            "hook.proto": True,
            "nri.proto": False,
            "pod_resources.proto": True,
            "ttrpc.proto": False,
        },
    ),
}


def main(out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    for package, (source, files) in PACKAGES.items():
        for file, has_grpc in files.items():
            # The mapped path makes the stubs import each other by their package.
            status = protoc.main(
                [
                    "protoc",
                    f"-I{package}={ROOT / source}",
                    f"-I{resources.files('grpc_tools') / '_proto'}",
                    f"--python_out={out}",
                    *([f"--grpc_python_out={out}"] if has_grpc else []),
                    f"{package}/{file}",
                ]
            )
            if status != 0:
                return int(status)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
