"""Systemd units, through ``systemctl``: for what happens seldom, where D-Bus of our own would only
cost memory."""

from __future__ import annotations

import asyncio
import shutil

from koordlet.kernel.host import Host

RUN_DIRECTORY = "/run/systemd"
_RUNS = f"{RUN_DIRECTORY}/system"  # sd_booted(3)
_CALL_S = 10.0


def not_running(host: Host) -> str:
    """Return that systemd is not this machine's init; empty where it is."""
    return "" if host.exists(_RUNS) else f"systemd does not run here ({_RUNS} is not there)"


def missing(host: Host) -> str:
    """Why no unit can be stopped here; empty when one can."""
    if why := not_running(host):
        return why
    return "" if shutil.which("systemctl") else "systemctl is not installed"


async def stop(unit: str) -> str:
    """Ask systemd to stop a unit, by the unit's own commands and TimeoutStopSec=. Returns what is
    wrong, empty when systemd has taken the job; the unit ends later."""
    process = await asyncio.create_subprocess_exec(
        *("systemctl", "--no-block", "stop", "--", unit),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_CALL_S):
            _, said = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"systemctl did not answer within {_CALL_S:g} s"
    if process.returncode:
        return said.decode(errors="replace").strip() or f"systemctl ended with {process.returncode}"
    return ""
