"""One guest from power-on to power-off."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tests.vm.disks import packages_disk, payload_disk, read_results, results_disk
from tests.vm.guests import Guest, command
from tests.vm.services import NoServicesError
from tests.vm.stages import Stage

# What the kernel says when it is broken. A stall is none: the host may be busy with others.
_BROKEN = re.compile(r"Kernel panic|Oops|BUG: |general protection fault|Unable to mount root")
CANNOT_RUN = 77
"""Exit code of a stage outside that this machine has not the means for; its last line says why."""


@dataclass
class Report:
    guest: Guest
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    closing: dict[str, str] = field(default_factory=dict)
    """Of each stage: its status, or what pytest said at the end."""
    skips: list[str] = field(default_factory=list)


def prepare(guest: Guest, image: Path, stages: tuple[Stage, ...], work: Path) -> tuple[Path, ...]:
    """The disks besides the root."""
    packages = packages_disk(image, guest.image.architecture)
    payload, results = work / "payload.img", work / "results.img"
    payload_disk(guest.name, image, stages, payload)
    results_disk(results)
    return packages, payload, results


async def run(
    guest: Guest,
    image: Path,
    stages: tuple[Stage, ...],
    work: Path,
    limit_s: float,
    say: Callable[[str], None],
) -> Report:
    """Prepares, boots and waits. ``work``: an empty directory; the kernel's log (``kernel.log``)
    and what the stages left (``STAGE.xml``) are there afterwards."""
    report = Report(guest)
    try:
        disks = await asyncio.to_thread(prepare, guest, image, stages, work)
    except NoServicesError as error:
        report.failures.append(str(error))
        return report
    packages, payload, results = disks
    words = command(guest, image, (payload, packages), work / "kernel.log", results)
    began = time.monotonic()
    with (work / "qemu.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
    try:
        async with asyncio.timeout(limit_s):
            with (work / "console.log").open("w", buffering=1) as console:
                await _follow(process, console.write, say)
            if await process.wait() != 0:
                report.failures.append(f"QEMU: {(work / 'qemu.log').read_text()[-300:].strip()}")
    except TimeoutError:
        report.failures.append(f"not done after {limit_s:.0f} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    report.seconds = time.monotonic() - began
    read_results(results, work)
    for disk in (payload, results):
        disk.unlink()
    _judge(report, stages, work)
    return report


async def run_outside(
    guest: Guest, stages: tuple[Stage, ...], work: Path, say: Callable[[str], None]
) -> Report:
    """Stages that start the guest themselves."""
    report = Report(guest)
    began = time.monotonic()
    for stage in stages:
        assert stage.outside, f"stage {stage.name} would run in a guest that another one starts"
        assert stage.command[0] == "python"
        process = await asyncio.create_subprocess_exec(
            sys.executable, *stage.command[1:],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        kept = work / f"{stage.name}.log"
        try:
            async with asyncio.timeout(stage.limit_s):
                with kept.open("w", buffering=1) as log:
                    await _follow(process, log.write, say)
                code = await process.wait()
        except TimeoutError:
            report.failures.append(f"stage {stage.name}: out of time ({stage.limit_s} s)")
            code = 124
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        report.closing[stage.name] = f"exit code {code}"
        if code == CANNOT_RUN:
            report.skips.append(f"{stage.name}: {kept.read_text().splitlines()[-1]}")
        elif code not in (0, 124):
            report.failures.append(f"stage {stage.name}: exit code {code}")
    report.seconds = time.monotonic() - began
    return report


async def _follow(
    process: asyncio.subprocess.Process, keep: Callable[[str], object], say: Callable[[str], None]
) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        text = line.decode(errors="replace").rstrip()
        keep(text + "\n")
        say(text)


def _judge(report: Report, stages: tuple[Stage, ...], work: Path) -> None:
    log = work / "kernel.log"
    told = log.read_text(errors="replace") if log.exists() else ""
    report.failures += [line.strip() for line in told.splitlines() if _BROKEN.search(line)][:5]
    for stage in stages:
        status = work / f"{stage.name}.status"
        if not status.exists():
            report.failures.append(f"stage {stage.name}: never ended")
            report.closing[stage.name] = "never ended"
            continue
        code = int(status.read_text())
        if code != 0:
            why = f"out of time ({stage.limit_s} s)" if code in (124, 137) else f"exit code {code}"
            report.failures.append(f"stage {stage.name}: {why}")
        results = work / f"{stage.name}.xml"
        report.closing[stage.name] = f"exit code {code}"
        if stage.pytest and results.exists():
            _read_junit(report, stage.name, results)


def _read_junit(report: Report, stage: str, file: Path) -> None:
    suite = ElementTree.parse(file).getroot().find("testsuite")
    assert suite is not None
    total, bad, skipped = (
        sum(int(suite.get(name, "0")) for name in names)
        for names in (("tests",), ("failures", "errors"), ("skipped",))
    )
    seconds = float(suite.get("time", "0"))
    report.closing[stage] = (
        f"{total - bad - skipped} passed, {bad} failed, {skipped} skipped in {seconds:.0f} s"
    )
    if total == skipped:
        report.failures.append(f"stage {stage}: nothing was tested")
    for case in suite.iter("testcase"):
        for skip in case.iter("skipped"):
            place = case.get("classname", "").replace(".", "/")
            report.skips.append(f"{place}: {skip.get('message', '')}")
