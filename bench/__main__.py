"""``python -m bench [--smoke] [NAME ...]``: run benches and print one table of their figures.

Each runs in a process of its own, so that one does not find the memory of another and a broken
one stops none. Goals are printed and not enforced: the exit status is 1 only when a bench breaks.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, NoReturn

import msgspec
import structlog

from bench import (
    against,
    alarm,
    bpf,
    daemon,
    day,
    demo,
    devices,
    explain,
    hooks,
    inputs,
    member,
    nri,
    page,
    prediction,
    proxy,
    recording,
    scripts,
)
from bench.central import admission, descheduler, engine, manager, recommend, scheduler
from bench.effects import (
    blkio,
    chosen,
    cpu_burst,
    means,
    memory,
    memory_evict,
    memory_services,
    network,
    put_off,
    satisfaction,
    tick,
    whole,
)
from bench.effects.slices import Size
from bench.figures import Figure, Measured, NotMeasuredError, machine_line, table
from bench.interference import run as interference

Run = Callable[..., list[Figure] | Measured]


class Bench(NamedTuple):
    """``run(smoke, say)``: progress goes to ``say``. ``in_arms``: it also takes ``repeat=``, how
    often each of its arms runs. ``in_slices``: it takes ``size=``, which is ``usual`` unless told.
    ``has_long``: it takes ``long=``, for more than anybody waits for. ``light``: it takes a core at
    most and works on a busy machine too, so that with ``--smoke`` it runs beside one that is
    not. ``is_variant``: its code is that of another one, so that ``--smoke`` leaves it out."""

    proves: str
    run: Run
    needs_root: bool = True
    in_arms: bool = False
    in_slices: bool = False
    usual: Size = Size()
    light: bool = False
    has_long: bool = False
    is_variant: bool = False


BENCHES = {
    "collect": Bench(
        "a round of collection against open() and read()", scripts.collect, light=True
    ),
    "tsdb": Bench(
        "append, queries, bytes and memory of the store", scripts.tsdb, needs_root=False, light=True
    ),
    "daemon": Bench("CPU and memory of the whole daemon on 300 pods", daemon.run, light=True),
    "inputs": Bench("what the inputs log costs; its decisions made again", inputs.run, light=True),
    "alarm": Bench("alarm to write; load step to limit, against a 1 s poll", alarm.run),
    "bpf": Bench("what our programs in the kernel cost", bpf.run),
    "interference": Bench(
        "who disturbs whom: recall, precision, delay", interference.run, in_arms=True, has_long=True
    ),
    "devices": Bench(
        "readings of GPUs, RDMA devices, accelerators", devices.run, needs_root=False, light=True
    ),
    "explain": Bench(
        "what callers of the API cost the event loop", explain.run, needs_root=False, light=True
    ),
    "hooks": Bench("what hooks cost the event loop", hooks.run, needs_root=False, light=True),
    "page": Bench(
        "what a scrape of the metrics page costs", page.run, needs_root=False, light=True
    ),
    "prediction": Bench(
        "predictors of peaks beside each other; their cost",
        prediction.run,
        needs_root=False,
        light=True,
    ),
    "member": Bench("a write at the API server to the kernel; outages", member.run, light=True),
    "recommend": Bench(
        "what workloads should request, against what came",
        recommend.run,
        needs_root=False,
        light=True,
    ),
    "nri": Bench(
        "what a container's creation pays for asking us", nri.run, needs_root=False, light=True
    ),
    "proxy": Bench("what the CRI proxy adds to a call", proxy.run, needs_root=False, light=True),
    "manager": Bench(
        "the manager of 5,000 simulated nodes: CPU, memory, writes",
        manager.run,
        needs_root=False,
        light=True,
    ),
    "engine": Bench(
        "a decision of the scheduler, with all plugins", engine.run, needs_root=False, light=True
    ),
    "scheduler": Bench(
        "the scheduler: decisions, memory, a day, a restart",
        scheduler.run,
        needs_root=False,
        light=True,
    ),
    "descheduler": Bench(
        "a round of the descheduler: CPU, the event loop",
        descheduler.run,
        needs_root=False,
        light=True,
    ),
    "admission": Bench(
        "what the webhooks cost for a pod", admission.run, needs_root=False, light=True
    ),
    "demo": Bench("the demo: p99, waits, CPU", demo.run, in_slices=True),
    **{
        name: Bench(
            pair.title,
            partial(whole.run, pair),
            in_slices=True,
            is_variant=name not in ("whole", "whole-postgres"),
        )
        for name, pair in whole.PAIRS.items()
    },
    **{
        f"chosen{name.removeprefix('whole')}": Bench(
            f"means that a daemon has chosen: {whole.PAIRS[name].title}",
            partial(chosen.run, whole.PAIRS[name]),
            in_slices=True,
            is_variant=name != "whole-2-threads",
        )
        for name in ("whole", "whole-redis", "whole-2-threads", "whole-4-threads-short")
    },
    **{
        name: Bench(
            f"means beside {shape.threads} x {shape.work_ms:g} ms: p99, waits, what BE gets",
            partial(means.run, shape),
            in_slices=True,
            is_variant=name != "means",
        )
        for name, shape in means.SHAPES.items()
    },
    **{
        name: Bench(
            f"bursts under a CPU quota: {served.title}",
            partial(cpu_burst.run, served),
            in_slices=True,
            is_variant=name != "cpu-burst",
        )
        for name, served in cpu_burst.SERVICES.items()
    },
    "tick": Bench("what the daemon's ticks cost a service", tick.run, in_slices=True),
    "put-off": Bench(
        "a service put off the CPU, by the limit of best effort",
        put_off.run,
        in_slices=True,
        usual=put_off.USUAL,
    ),
    "network": Bench("shares of a link; LS behind BE on it", network.run, in_slices=True),
    "blkio": Bench("BE held to its limit of a disk; commits of LS", blkio.run, in_slices=True),
    "memory": Bench(
        "nginx and redis while BE fills memory; cgroup v2",
        memory_services.run,
        in_slices=True,
        usual=memory.USUAL,
    ),
    "memory-pages": Bench(
        "the same, each page counted; cgroup v2",
        memory.run,
        in_slices=True,
        usual=memory.USUAL,
    ),
    "memory-evict": Bench("a leak, from the threshold to freed", memory_evict.run, in_arms=True),
    "cpu-evict": Bench("who goes when BE starves", satisfaction.run, in_arms=True),
    "day": Bench(
        "memory and descriptors over a simulated day", day.run, needs_root=False, light=True
    ),
}
_PROGRESS = 78


def main() -> int:
    listing = "\n".join(f"  {name:12} {bench.proves}" for name, bench in BENCHES.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        epilog=f"benches:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all when none is named")
    parser.add_argument("--smoke", action="store_true", help="small sizes: do they run at all?")
    parser.add_argument(
        "--repeat", type=int, metavar="N", help="runs of each arm where there are arms"
    )
    parser.add_argument(
        "--long", action="store_true", help="the long schedule of interference, some 40 minutes"
    )
    parser.add_argument(
        "--slices", type=int, metavar="N", help="slices of each arm where they alternate"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of their order and the load")
    parser.add_argument(
        "--record", action="store_true", help="into bench/records, from which the page is made"
    )
    parser.add_argument("--json", action="store_true", help="figures as JSON, for scripts")
    parser.add_argument(
        "--against", metavar="COMMIT", help="run each in its tree too, in alternation, and compare"
    )
    parser.add_argument(
        "--rounds", type=int, default=against.ROUNDS, metavar="N", help="of --against"
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHES]
    if options.repeat is not None and options.repeat < 1:
        parser.error(f"--repeat must be at least 1, not {options.repeat}")
    if options.slices is not None and options.slices < 1:
        parser.error(f"--slices must be at least 1, not {options.slices}")
    if options.record and options.smoke:
        parser.error("--record: a smoke run measures nothing")
    if unknown:
        parser.error(f"no bench {unknown[0]!r}; there are: {', '.join(BENCHES)}")
    # An end that was asked for cleans up like Ctrl-C does.
    signal.signal(signal.SIGTERM, _interrupt)
    # Standard output is for figures.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    every = [name for name, each in BENCHES.items() if not (options.smoke and each.is_variant)]
    names = options.names or every
    if options.against is not None:
        return _run_against(options.against, names, options)
    if len(names) == 1:
        return _run_one(names[0], options)
    return _run_each(names, options)


def _run_one(name: str, options: argparse.Namespace) -> int:
    bench = BENCHES[name]
    if bench.needs_root and os.geteuid() != 0:
        print(f"bench {name} makes cgroups, which needs root", file=sys.stderr)
        return 1
    more: dict[str, object] = {}
    if bench.in_arms and options.repeat is not None:
        more["repeat"] = options.repeat
    if bench.in_slices and (options.slices is not None or options.seed is not None):
        usual = bench.usual
        more["size"] = Size(
            options.slices or usual.slices, usual.slice_s, options.seed or usual.seed
        )
    if bench.has_long:
        more["long"] = options.long
    before, load_before = machine_line(), os.getloadavg()
    try:
        found = bench.run(options.smoke, lambda text: _say(name, text), **more)
    except NotMeasuredError as error:
        print(f"{name}: not measured: {error}", file=sys.stderr)
        found = []
    except KeyboardInterrupt:
        return 130
    measured = found if isinstance(found, Measured) else Measured(found)
    if options.record and measured.figures:
        command = [name, *_sizes(options)]
        recording.write(name, command, load_before, measured)
    _print([(name, figure) for figure in measured.figures], before, options.json)
    return 0


def _run_against(commit: str, names: list[str], options: argparse.Namespace) -> int:
    sizes = _sizes(options)
    print(machine_line())
    try:
        rows = against.run(
            commit, names, sizes, options.rounds, lambda text: print(text, file=sys.stderr)
        )
    except against.BrokenError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(against.table(rows))
    return 0


def _sizes(options: argparse.Namespace) -> list[str]:
    numbers = {name: getattr(options, name) for name in ("repeat", "slices", "seed")}
    return [
        *(["--smoke"] if options.smoke else []),
        *(["--long"] if options.long else []),
        *(f"--{name}={number}" for name, number in numbers.items() if number is not None),
    ]


def _run_each(names: list[str], options: argparse.Namespace) -> int:
    sizes, smoke = _sizes(options), options.smoke
    before = machine_line()
    lanes = [names]
    if smoke:
        lanes = [
            [name for name in names if BENCHES[name].light is light] for light in (False, True)
        ]
    found: dict[str, list[Figure] | None] = {}
    lane = _Lane(sizes, found, polite=smoke, record=options.record)
    with ThreadPoolExecutor(len(lanes)) as pool:
        running = [pool.submit(lane.run, each) for each in lanes]
        try:
            for each in running:
                each.result()
        except KeyboardInterrupt:
            lane.stop()
            return 130
    _print([(name, each) for name in names for each in found[name] or ()], before, options.json)
    if broken := [name for name in names if found[name] is None]:
        print(f"broken: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


class _Lane:
    """Benches one after the other, each in a process. ``found``: name -> figures, None: broken.
    ``polite``: a light one lets the other lane go first."""

    def __init__(
        self,
        sizes: list[str],
        found: dict[str, list[Figure] | None],
        *,
        polite: bool,
        record: bool,
    ) -> None:
        self._sizes = sizes
        self._record = record
        self._polite = polite
        self._found = found
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(self, names: list[str]) -> None:
        """In a thread for each lane."""
        for name in names:
            command = [sys.executable, "-m", "bench", name, "--json", *self._sizes]
            if self._record:
                command.append("--record")
            if self._polite and BENCHES[name].light:
                command = ["nice", "-n", "10", *command]
            with self._lock:
                if self._stopped:
                    return
                begun_s = time.monotonic()
                child = subprocess.Popen(command, stdout=subprocess.PIPE)
                self._children.add(child)
            output, _ = child.communicate()
            _say(name, f"took {time.monotonic() - begun_s:.0f} s")
            with self._lock:
                self._children.remove(child)
            decode = msgspec.json.decode
            self._found[name] = None if child.returncode else decode(output, type=list[Figure])

    def stop(self) -> None:
        """A second signal for those that Ctrl-C has reached too."""
        with self._lock:
            self._stopped = True
            for child in self._children:
                child.terminate()


def _print(rows: list[tuple[str, Figure]], before: str, as_json: bool) -> None:
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode([figure for _, figure in rows]) + b"\n")
        return
    print(before)
    print(table(rows))
    print(f"afterwards: {machine_line().rpartition(', ')[2]}")


def _say(name: str, text: str) -> None:
    print(f"{name}: {text}"[:_PROGRESS], file=sys.stderr, flush=True)


def _interrupt(number: int, frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
