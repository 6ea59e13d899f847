"""doctor on NRI and the proxy: real forms of the files of containerd, CRI-O and kubelet."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.admin.model.doctor import CheckState, CheckView
from koordlet.admin.runtime_checks import runtime_checks, sharers
from koordlet.admin.runtime_config import (
    Process,
    UnreadableError,
    containerd_nri,
    crio_nri,
    kubelet_endpoint,
    plain_path,
    processes,
)
from koordlet.kernel.linux import LinuxHost
from tests.admin.files import Files

ROOT = Path(__file__).parent.parent.parent
PROXY = "/run/koord-runtimeproxy/runtimeproxy.sock"
SOCKET = "/var/run/nri/nri.sock"
CONTAINERD = "/etc/containerd/config.toml"
DIRECT = "--container-runtime-endpoint=unix:///run/containerd/containerd.sock"


def machine(
    *commands: str, uid: int = 0, files: dict[str, str] | None = None, sockets: tuple[str, ...] = ()
) -> Files:
    found = {"/proc/sys/x": b""}
    for pid, command in enumerate(commands, 100):
        words = command.split()
        found[f"/proc/{pid}/comm"] = words[0].rpartition("/")[2].encode() + b"\n"
        found[f"/proc/{pid}/status"] = f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n".encode()
        found[f"/proc/{pid}/cmdline"] = "\0".join(words).encode() + b"\0"
    found |= {path: text.encode() for path, text in (files or {}).items()}
    return Files(found | dict.fromkeys(sockets, b""))


def no_dump(file: str) -> str | None:
    return None


def checked(host: Files, dump: str | None = None) -> tuple[CheckView, ...]:
    found = runtime_checks(host, PROXY, lambda _: dump)  # type: ignore[arg-type]
    assert all((c.state is CheckState.OK) != bool(c.cost and c.remedy) for c in found)
    return found


def test_who_writes_the_same_files_of_those_that_run_here() -> None:
    both = machine("/usr/bin/kubelet", files={"/run/systemd/system/x": ""})
    names = [check.name for check in sharers(both)]
    assert len(names) == 5 and names[1] == "shared files: kubelet 1.37 (MemoryQoS)"
    alone = machine(files={"/run/systemd/system/x": ""})
    assert (
        all("systemd" in check.name for check in sharers(alone)) and len(list(sharers(alone))) == 2
    )
    assert not list(sharers(machine()))


def nri(body: str, version: int = 2) -> str:
    return f'version = {version}\n[plugins."io.containerd.nri.v1.nri"]\n{body}\n'


@pytest.mark.parametrize(
    ("config", "socket", "state", "text"),
    [
        (
            nri("disable = false\ndisable_connections = false"),
            True,
            "ok",
            "NRI is on, /var/run/nri",
        ),
        (nri("disable = true"), False, "limited", "switched off"),
        (nri("disable = true"), True, "limited", "switched off"),
        (nri("disable = false\ndisable_connections = true"), True, "limited", "may not connect"),
        (nri("disable = false"), False, "limited", "but there is no"),
        (nri("disable = false\nsocket_path = '/x.sock'"), True, "limited", "no /x.sock"),
        ("version = 2\n", False, "limited", "says nothing of NRI"),
        ("version = 2\n", True, "ok", "is there"),
        ("version = 3\n", False, "limited", "on in /etc/containerd/config.toml, but"),
        ('disabled_plugins = ["nri"]', False, "limited", "switched off"),
        ('disabled_plugins = ["cri"]', False, "ok", "no CRI"),
        ("version = = 2", True, "limited", "config.toml: "),
        ("disabled_plugins = 5\nimports = 5\nplugins = 5", True, "ok", "is there"),
        (nri("socket_path = 5"), True, "ok", "is there"),
    ],
)
def test_containerd(config: str, socket: bool, state: str, text: str) -> None:
    files = {CONTAINERD: config}
    host = machine("/usr/bin/containerd", files=files, sockets=(SOCKET,) if socket else ())
    check = checked(host)[0]
    assert check.name == "container runtime: containerd, pid 100"
    assert (check.state.value, text in check.why) == (state, True), check.why


def test_what_could_connect_and_does_not_keeps_the_proxy_necessary() -> None:
    kubelet = f"/usr/bin/kubelet {DIRECT}"
    host = machine("/usr/bin/containerd", kubelet, sockets=(SOCKET,))
    states = [
        runtime_checks(host, PROXY, no_dump, connected=connected)[-1].state.value  # type: ignore[arg-type]
        for connected in (None, True, False)
    ]
    assert states == ["ok", "ok", "limited"]


def test_what_containerd_itself_says_goes_before_its_files() -> None:
    files = {CONTAINERD: nri("disable = false\ndisable_connections = false")}
    host = machine("/usr/bin/containerd", files=files, sockets=(SOCKET,))
    assert checked(host)[0].state is CheckState.OK
    assert "switched off" in checked(host, nri("disable = true"))[0].why
    # Before 1.7 there is no such plugin.
    host = machine("/usr/bin/containerd", files=files)
    assert "off by default" in checked(host, "version = 2\n")[0].why


def test_imports_are_followed_and_later_files_count() -> None:
    files = {
        "/c/main.toml": f'imports = ["conf.d/*.toml", "/c/main.toml"]\n{nri("disable = true")}',
        "/c/conf.d/10-a.toml": nri("disable = false\ndisable_connections = true"),
        "/c/conf.d/20-b.toml": nri("disable_connections = false"),
        "/c/conf.d/30-c.conf": nri("disable = true"),
    }
    found = containerd_nri(machine(files=files), "/c/main.toml", no_dump)  # type: ignore[arg-type]
    assert (found.disabled, found.connections_disabled) == (False, False)
    host = machine("containerd -c /c/main.toml", files=files, sockets=(SOCKET,))
    assert checked(host)[0].state is CheckState.OK


def test_the_shipped_drop_in_switches_both_on() -> None:
    files = {
        CONTAINERD: f'imports = ["/etc/containerd/conf.d/*.toml"]\n{nri("disable = true")}',
        "/etc/containerd/conf.d/koordlet-nri.toml": (
            ROOT / "systemd/containerd-nri.toml"
        ).read_text(),
    }
    found = containerd_nri(machine(files=files), CONTAINERD, no_dump)  # type: ignore[arg-type]
    assert (found.disabled, found.connections_disabled) == (False, False)


@pytest.mark.parametrize("suite", ["trixie", "sid"])
def test_real_containerd_agrees_about_the_drop_in(suite: str, tmp_path: Path) -> None:
    """Of both generations, if tests/runtime has fetched them."""
    program = Path.home() / ".cache/koordlet/runtime" / suite / "bin/containerd"
    if not program.exists():
        pytest.skip(f"needs a containerd: tools/fetch-runtime {suite}")
    (tmp_path / "conf.d").mkdir()
    shutil.copy(ROOT / "systemd/containerd-nri.toml", tmp_path / "conf.d")
    main = tmp_path / "main.toml"
    pause = '[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "own/pause:7"\n'
    main.write_text(
        f'version = 2\nimports = ["{tmp_path}/conf.d/*.toml"]\n{pause}'
        '[plugins."io.containerd.nri.v1.nri"]\ndisable = true\ndisable_connections = true\n'
    )

    def dump(file: str) -> str:
        command = [str(program), "--config", file, "config", "dump"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        assert "own/pause:7" in done.stdout  # nothing else is lost
        return done.stdout

    found = containerd_nri(LinuxHost(), str(main), dump)
    assert (found.disabled, found.connections_disabled) == (False, False)
    assert found.serves_pods


@pytest.mark.parametrize(
    ("files", "sockets", "state", "text"),
    [
        ({}, (), "limited", "says nothing of NRI"),
        ({}, (SOCKET,), "ok", "is there"),
        ({"/etc/crio/crio.conf": "[crio.nri]\nenable_nri = false"}, (), "limited", "off in"),
        (
            {
                "/etc/crio/crio.conf": "[crio.nri]\nenable_nri = false",
                "/etc/crio/crio.conf.d/10-nri": "[crio.nri]\nenable_nri = true",
            },
            (SOCKET,),
            "ok",
            "is there",
        ),
        (
            {"/etc/crio/crio.conf.d/10-nri": "[crio.nri]\nnri_disable_connections = true"},
            (SOCKET,),
            "limited",
            "may not connect",
        ),
        ({"/etc/crio/crio.conf": "enable"}, (SOCKET,), "limited", "crio.conf: "),
    ],
)
def test_crio(files: dict[str, str], sockets: tuple[str, ...], state: str, text: str) -> None:
    check = checked(machine("/usr/bin/crio", files=files, sockets=sockets))[0]
    assert (check.state.value, text in check.why) == (state, True), check.why
    assert crio_nri.__doc__


def test_nothing_runs_here() -> None:
    assert [(c.name, c.state.value) for c in checked(machine())] == [
        ("container runtime", "ok"),
        ("CRI proxy", "ok"),
    ]


def test_a_process_of_another_user_is_not_believed() -> None:
    host = machine("containerd", "kubelet", uid=1000)
    assert processes(host, "containerd") == ()  # type: ignore[arg-type]
    assert [c.why for c in checked(host)][1] == "no kubelet on this machine"


YAML = "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://{}\n"


@pytest.mark.parametrize(
    ("command", "files", "address"),
    [
        (f"kubelet {DIRECT}", {}, "unix:///run/containerd/containerd.sock"),
        ("kubelet --container-runtime-endpoint /x.sock", {}, "/x.sock"),
        ("kubelet --config /k.yaml", {"/k.yaml": YAML.format("/y.sock")}, "unix:///y.sock"),
        (f"kubelet {DIRECT}x --config /k.yaml", {"/k.yaml": YAML.format("/y")}, DIRECT[29:] + "x"),
        (
            "kubelet --config=/k.yaml --config-dir=/k.d",
            {"/k.yaml": YAML.format("/y"), "/k.d/9.conf": YAML.format("/z")},
            "unix:///z",
        ),
        ("kubelet", {"/var/lib/kubelet/config.yaml": YAML.format("/y")}, "unix:///y"),
        ("kubelet", {}, "unix:///run/containerd/containerd.sock"),
        ("", {"/var/lib/kubelet/config.yaml": YAML.format("/y")}, "unix:///y"),
        (
            "",
            {
                "/var/lib/kubelet/config.yaml": YAML.format("/y"),
                "/var/lib/kubelet/kubeadm-flags.env": f'KUBELET_KUBEADM_ARGS="--v=2 {DIRECT}"\n',
            },
            "unix:///run/containerd/containerd.sock",
        ),
    ],
)
def test_where_kubelet_has_its_endpoint_from(
    command: str, files: dict[str, str], address: str
) -> None:
    host = machine(*([command] if command else []), files=files)
    running = processes(host, "kubelet")  # type: ignore[arg-type]
    found = kubelet_endpoint(host, running[0] if running else None)  # type: ignore[arg-type]
    assert found is not None
    assert found.address == address


def test_kubelet_and_the_proxy() -> None:
    through = f"kubelet --container-runtime-endpoint=unix:///var{PROXY}"
    on = nri("disable = false\ndisable_connections = false")
    assert plain_path(f"unix:///var{PROXY}") == PROXY

    *_, broken = checked(machine(through))
    assert broken.state is CheckState.FAIL
    assert "no pod starts" in broken.cost

    *_, works = checked(machine(through, sockets=(PROXY,)))
    assert (works.state, "to go back" in works.why) == (CheckState.OK, True)

    files = {CONTAINERD: on}
    *_, both = checked(machine("containerd", through, files=files, sockets=(PROXY, SOCKET)))
    assert (both.state, "could go" in both.why) == (CheckState.OK, True)

    *_, unneeded = checked(
        machine("containerd", f"kubelet {DIRECT}", files=files, sockets=(SOCKET,))
    )
    assert (unneeded.state, "unnecessary" in unneeded.why) == (CheckState.OK, True)

    *_, neither = checked(machine("containerd", f"kubelet {DIRECT}", files={CONTAINERD: ""}))
    assert neither.state is CheckState.LIMITED
    assert PROXY in neither.remedy


@given(st.binary(max_size=200))
def test_any_file_is_read_or_refused_with_its_name(data: bytes) -> None:
    host = Files({CONTAINERD: data, "/var/lib/kubelet/config.yaml": data})
    for read in (
        lambda: containerd_nri(host, CONTAINERD, no_dump),  # type: ignore[arg-type]
        lambda: kubelet_endpoint(host, Process(1, ("kubelet",))),  # type: ignore[arg-type]
    ):
        try:
            read()
        except UnreadableError as error:
            assert str(error).startswith(("/etc/containerd", "/var/lib/kubelet"))
