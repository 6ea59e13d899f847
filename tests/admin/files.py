"""Files of a machine, as much of a Host as the checks of doctor need."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Files:
    """Absolute path -> content; a directory is there as long as a file is below it."""

    files: dict[str, bytes] = field(default_factory=dict)

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.files[path]

    def exists(self, path: str) -> bool:
        return any(file == path or file.startswith(f"{path}/") for file in self.files)

    def listdir(self, path: str) -> list[str]:
        below = self._below(path)
        if not below:
            raise FileNotFoundError(2, "No such file or directory", path)
        return sorted({file.split("/")[0] for file in below})

    def subdirs(self, path: str) -> list[str]:
        return sorted({file.split("/")[0] for file in self._below(path) if "/" in file})

    def _below(self, path: str) -> list[str]:
        return [file.removeprefix(f"{path}/") for file in self.files if file.startswith(f"{path}/")]
