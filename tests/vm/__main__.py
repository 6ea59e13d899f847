"""``python -m tests.vm``: koordlet's tests on stock kernels, in virtual machines; docs/testing.md.

Exit codes: 0 all passed, or skipped because this machine cannot build or run a guest (said so);
1 a test failed, a guest's kernel broke, or time ran out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.vm.disks import REPOSITORY, cache
from tests.vm.guests import GUESTS, Guest, Image
from tests.vm.machine import Report, run, run_outside
from tests.vm.stages import Stage, read_stages

_AD_HOC = "given"
_WORK = "koordlet-vm-"


def main() -> int:
    options = _arguments().parse_args()
    if why := _why_not():
        print(f"test-vm: skipped: {why}")
        return 0
    chosen = _chosen(options)
    if not chosen:
        print("test-vm: no guest has such a stage", file=sys.stderr)
        return 2
    for guest in [each for each in chosen if each.kernel and not each.kernel.exists()]:
        print(f"test-vm: guest {guest.name} skipped: {guest.kernel} is not there; "
              "KOORDLET_VM_KERNEL names a kernel with core scheduling")  # fmt: skip
        del chosen[guest]
    if not chosen:
        return 0
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        return asyncio.run(_all(chosen, options.limit))
    print("test-vm: interrupted", file=sys.stderr)
    return 130


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.vm", description=__doc__)
    names = [guest.name for guest in GUESTS]
    parser.add_argument("--guest", action="append", choices=names, help="only this one")
    parser.add_argument("--stage", action="append", help="only this one of tests/vm/stages.toml")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for a guest (1800)")
    parser.add_argument(
        "--long", action="store_true", help="also what CI leaves out of a guest (stages.toml)"
    )
    parser.add_argument(
        "--bench", action="store_true", help="instead of stages: python -m bench (guest load)"
    )
    parser.add_argument(
        "arguments", nargs="*", help="after --: of the bench, or instead of stages of pytest"
    )
    return parser


def _why_not() -> str:
    if platform.machine() != "x86_64":
        return f"guests are built on x86_64, this machine is {platform.machine()}"
    if os.geteuid() != 0:
        return "building a guest needs root"
    setup = subprocess.run(
        [REPOSITORY / "tools" / "test-vm-setup"], stderr=subprocess.PIPE, text=True, check=False
    )
    sys.stderr.write(setup.stderr)
    return "" if setup.returncode == 0 else setup.stderr.strip() or "tools/test-vm-setup failed"


def _chosen(options: argparse.Namespace) -> dict[Guest, tuple[Stage, ...]]:
    """What each guest runs."""
    limit_s, arguments = int(options.limit), tuple(options.arguments)
    if options.bench:
        command = ("python", "-m", "bench", *arguments)
        names = tuple(options.guest or ("load",))
        # The services are programs for amd64; benches that need none run elsewhere too.
        services = all(each.image.architecture == "amd64" for each in GUESTS if each.name in names)
        table = (Stage(_AD_HOC, names, limit_s, command=command, services=services),)
    elif arguments:
        names = tuple(options.guest or ("v2", "hybrid"))
        table = (Stage(_AD_HOC, names, limit_s, pytest=arguments),)
    else:
        table = read_stages()
    chosen = {}
    for guest in GUESTS:
        stages = tuple(
            stage
            for stage in table
            if guest.name in stage.guests and _wanted(stage, options.stage, is_long=options.long)
        )
        if not stages or (options.guest and guest.name not in options.guest):
            continue
        if guest.is_long and not (options.long or options.guest):
            continue
        chosen[guest] = stages if options.long else tuple(s.short(guest.name) for s in stages)
    return chosen


def _wanted(stage: Stage, names: list[str] | None, *, is_long: bool) -> bool:
    if names:
        return stage.name in names
    return not stage.on_request and (is_long or not stage.is_long)


async def _all(chosen: dict[Guest, tuple[Stage, ...]], limit_s: float) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    wanted = {guest.image for guest in chosen}
    images = dict(await asyncio.gather(*(_build(image) for image in wanted)))
    for guest in [each for each in chosen if images[each.image] is None]:
        print(f"test-vm: guest {guest.name} skipped: this machine's mirror lacks its packages")
        del chosen[guest]
    kept = cache() / "last"
    _remove_left_behind()
    with tempfile.TemporaryDirectory(prefix=f"{_WORK}{os.getpid()}-") as work:
        at_once = asyncio.Semaphore(max(1, min(2, os.cpu_count() or 1)))

        async def one(guest: Guest, stages: tuple[Stage, ...]) -> Report:
            directory = Path(work) / guest.name
            directory.mkdir()
            async with at_once:
                image = images[guest.image]
                assert image is not None

                def say(text: str) -> None:
                    print(f"{guest.name:>11} | {text}", flush=True)

                if stages[0].outside:
                    report = await run_outside(guest, stages, directory, say)
                else:
                    report = await run(guest, image, stages, directory, limit_s, say)
            shutil.rmtree(kept / guest.name, ignore_errors=True)
            shutil.copytree(directory, kept / guest.name)
            return report

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(guest, stages)) for guest, stages in chosen.items()]
    return _tell([task.result() for task in tasks], kept)


def _remove_left_behind() -> None:
    """Work directories of runs that were killed."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_WORK}*"):
        pid = directory.name.removeprefix(_WORK).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(directory, ignore_errors=True)


async def _build(image: Image) -> tuple[Image, Path | None]:
    """Its directory; none where the mirror has no such architecture."""
    process = await asyncio.create_subprocess_exec(
        str(REPOSITORY / "tools" / "vm" / "build-guest"), image.suite, image.architecture,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if process.returncode == 3:
        return image, None
    if process.returncode != 0:
        raise SystemExit(f"test-vm: no guest of {image.suite} {image.architecture} could be built")
    return image, Path(out.decode().strip())


def _tell(reports: list[Report], kept: Path) -> int:
    print("\n=== test-vm")
    for report in reports:
        print(f"{report.guest.name} ({report.guest.about}): {report.seconds:.0f} s")
        for stage, closing in report.closing.items():
            print(f"    {stage}: {closing}")
        for skip, count in sorted(Counter(report.skips).items()):
            print(f"    skipped{f' {count} times' if count > 1 else ''}: {skip}")
        for failure in report.failures:
            print(f"    FAILED {failure}")
    print(f"consoles, kernel logs and reports: {kept}")
    return int(any(report.failures for report in reports))


if __name__ == "__main__":
    raise SystemExit(main())
