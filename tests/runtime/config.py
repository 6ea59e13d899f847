"""Configuration of a containerd that touches nothing outside its own folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.runtime.images import PAUSE

SUITES: Mapping[str, str] = {"1.7": "trixie", "2.x": "sid"}
"""containerd's line -> the Debian suite that has it."""

_COMMON = """
root = "{work}/root"
state = "{work}/state"
disabled_plugins = [{disabled}]
[grpc]
address = "{work}/containerd.sock"
[ttrpc]
address = "{work}/containerd.sock.ttrpc"
[plugins."io.containerd.nri.v1.nri"]
disable = false
disable_connections = false
plugin_path = "{work}/nri/plugins"
plugin_config_path = "{work}/nri/conf.d"
socket_path = "{work}/nri.sock"
plugin_registration_timeout = "5s"
plugin_request_timeout = "2s"
"""

# restrict_oom_score_adj: without CAP_SYS_RESOURCE runc cannot set the sandbox's default of -998.
_CRI_1 = """
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
disable_apparmor = true
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{work}/cni/bin"
conf_dir = "{work}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{bin}/runc"
Root = "{work}/runc"
SystemdCgroup = false
"""

_CRI_2 = """
[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
disable_apparmor = true
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{work}/cni/bin"]
conf_dir = "{work}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{bin}/runc"
Root = "{work}/runc"
SystemdCgroup = false
"""

# They look for modules, tools and folders of the machine; `opt` makes /opt/containerd.
_DISABLED = {
    "1.7": ("snapshotter.v1.btrfs", "snapshotter.v1.zfs", "snapshotter.v1.devmapper",
            "snapshotter.v1.aufs", "internal.v1.opt"),
    "2.x": ("snapshotter.v1.btrfs", "snapshotter.v1.zfs", "snapshotter.v1.devmapper",
            "snapshotter.v1.blockfile", "snapshotter.v1.erofs", "internal.v1.opt"),
}  # fmt: skip
_FORM = {"1.7": ("version = 2", _CRI_1), "2.x": ("version = 3", _CRI_2)}


def containerd_config(version: str, work: Path, binaries: Path) -> str:
    """config.toml; ``work`` is its folder, ``binaries`` that of runc."""
    head, cri = _FORM[version]
    disabled = ", ".join(f'"io.containerd.{name}"' for name in _DISABLED[version])
    common = _COMMON.format(work=work, disabled=disabled)
    return head + common + cri.format(work=work, bin=binaries, pause=PAUSE)
