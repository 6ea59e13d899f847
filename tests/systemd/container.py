"""A real systemd as PID 1 of a container made from this machine's own root file system.

Namespaces by unshare(1), an overlay whose upper layer is a tmpfs, a v2 cgroup of its own: nothing
that systemd or a service does in there reaches the machine. Needs root and the systemd package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost

SYSTEMD = "/lib/systemd/systemd"
INTERPRETER = Path(f"/usr/bin/python3.{sys.version_info.minor}")
PACKAGES = Path(sysconfig.get_path("purelib"))
REPOSITORY = Path(__file__).resolve().parents[2]
BOOT_TIMEOUT_S = 30.0

_BOOT = """\
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1/layer"
mkdir "$1/layer/upper" "$1/layer/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/layer/upper,workdir=$1/layer/work" "$1/root"
cd "$1/root"
files=$1/files
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for dir in dev run tmp; do mount -t tmpfs -o mode=755 tmpfs $dir; done
chmod 1777 tmp
for node in null zero full random urandom tty; do
    touch dev/$node
    mount --bind /dev/$node dev/$node
done
mkdir dev/pts dev/shm
mount -t devpts devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
cp -a "$files/." .
mkdir opt/koordlet/packages opt/koordlet/repository
for place in packages repository; do
    mount --bind "$2" opt/koordlet/$place
    mount -o remount,bind,ro opt/koordlet/$place
    shift
done
rm -f etc/machine-id
touch etc/machine-id
pivot_root . mnt
umount -l mnt
exec env -i container=koordlet-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --unit=koordlet-test.target --log-target=journal --show-status=no
"""

_TARGET = """\
[Unit]
Description=Just enough to run one service
Requires=basic.target
After=basic.target
AllowIsolate=yes
"""

# Of what basic.target pulls in: services of the machine, and mounts that would show its own.
_MASKED = """\
tmp.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount
dev-hugepages.mount dev-mqueue.mount proc-sys-fs-binfmt_misc.automount
systemd-udevd.service systemd-udev-trigger.service systemd-journald-audit.socket
systemd-modules-load.service systemd-sysctl.service systemd-tmpfiles-setup-dev.service
systemd-remount-fs.service systemd-hwdb-update.service ifupdown-pre.service networking.service
apt-daily.timer apt-daily-upgrade.timer man-db.timer fstrim.timer e2scrub_all.timer
dpkg-db-backup.timer
"""


def why_not() -> str:
    """Why a container cannot be booted here; empty when it can."""
    if os.geteuid() != 0:
        return "needs root"
    if not Path(SYSTEMD).exists():
        return f"needs {SYSTEMD}: apt-get install systemd"
    if shutil.which("unshare") is None:
        return "needs unshare: apt-get install util-linux"
    if detect(LinuxHost()).v2 is None:
        return "needs a mounted cgroup2 hierarchy"
    if not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists():
        return "needs /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN)"
    if not INTERPRETER.exists():
        return f"needs {INTERPRETER}, the version of Python these tests run on"
    return ""


class Container:
    """Booted between `__enter__` and `__exit__`. ``files``: path in the container -> content."""

    def __init__(self, directory: Path, files: dict[str, str]) -> None:
        self._directory = directory
        self._files = {**files, "etc/systemd/system/koordlet-test.target": _TARGET}
        root = detect(LinuxHost()).v2
        self._cgroup = Path(f"{root}/koordlet-test-systemd-{os.getpid()}")
        self._unshare: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __enter__(self) -> Container:
        staging = self._directory / "files"
        (self._directory / "layer").mkdir(parents=True)
        units = staging / "etc/systemd/system"
        units.mkdir(parents=True)
        for name in _MASKED.split():
            (units / name).symlink_to("/dev/null")
        for name, content in self._files.items():
            path = staging / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        _make_interpreter(staging / "opt/koordlet")
        self._cgroup.mkdir()
        try:
            self._boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._unshare is not None:
            # --kill-child: PID 1 of the namespace goes with it, and everything below.
            self._unshare.kill()
            self._unshare.wait()
        deadline = time.monotonic() + 10
        for directory in sorted(self._cgroup.rglob("*/"), reverse=True):
            _rmdir(directory, deadline)
        _rmdir(self._cgroup, deadline)

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command inside, with a clean environment."""
        return subprocess.run(
            ["nsenter", "-t", str(self._pid), "-a", "env", "-i",
             "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *command],
            check=check, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    def show(self, unit: str, *properties: str) -> dict[str, str]:
        """``systemctl show`` as a mapping."""
        out = self.run("systemctl", "show", unit, f"--property={','.join(properties)}").stdout
        return dict(line.split("=", 1) for line in out.splitlines())

    def write(self, path: str, content: str) -> None:
        """A file inside, by its path without the leading slash."""
        script = 'mkdir -p "$(dirname "/$1")" && printf %s "$2" > "/$1"'
        self.run("sh", "-c", script, "sh", path, content)

    def log(self, unit: str) -> str:
        """What a unit has said."""
        return self.run("journalctl", "--no-pager", "-o", "cat", "-u", unit).stdout

    def console(self) -> str:
        return (self._directory / "console").read_text(errors="replace")

    def _boot(self) -> None:
        script = self._directory / "boot"
        script.write_text(_BOOT)
        procs = self._cgroup / "cgroup.procs"

        def join_cgroup() -> None:
            procs.write_text("0")

        with (self._directory / "console").open("wb") as console:
            self._unshare = subprocess.Popen(
                ["unshare", "-m", "-p", "-C", "-u", "-i", "-n", "--fork", "--kill-child",
                 "bash", str(script), str(self._directory), str(PACKAGES), str(REPOSITORY)],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, preexec_fn=join_cgroup,
            )  # fmt: skip
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while time.monotonic() < deadline:
            time.sleep(0.1)
            if self._unshare.poll() is not None:
                break
            children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
            pids = children.read_text().split()
            if not pids:
                continue
            self._pid = int(pids[0])
            state = self.run("systemctl", "is-active", "koordlet-test.target", check=False)
            if state.stdout.strip() == "active":
                return
        raise RuntimeError(f"systemd did not come up:\n{self.console()[-3000:]}")


def _make_interpreter(prefix: Path) -> None:
    """``/opt/koordlet``: an environment on the system's Python with the packages of these tests.

    They are bound to a place of their own, since the tests' environment and the working tree may
    be in a home directory, which the unit's ProtectHome hides, or on another mount.
    """
    subprocess.run(
        [INTERPRETER, "-m", "venv", "--without-pip", str(prefix)], check=True, capture_output=True
    )
    site = next((prefix / "lib").glob("python3*/site-packages"))
    (site / "borrowed.pth").write_text("/opt/koordlet/repository\n/opt/koordlet/packages\n")
    launcher = prefix / "bin" / "koordlet"
    launcher.write_text("#!/opt/koordlet/bin/python\nfrom koordlet.cli.main import main\n"
                        "raise SystemExit(main())\n")  # fmt: skip
    launcher.chmod(0o755)


def _rmdir(path: Path, deadline: float) -> None:
    while path.exists():
        try:
            path.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
