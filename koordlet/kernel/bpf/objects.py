"""Objects with programs and maps, loaded by libbpf (``libbpf.so.1``, Debian's ``libbpf1``).

ctypes and libbpf take 1.1 MiB; both are loaded with the first object. Loading takes 20 to 45 ms
on a calm machine and seconds on a busy one, so it is work for a thread.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from koordlet.kernel.bpf.need import NEW_KERNEL, NeedError
from koordlet.kernel.bpf.syscalls import (
    Map,
    RunTime,
    memory_bytes,
    run_on,
    run_time,
    skipped_runs,
)

BTF = "/sys/kernel/btf/vmlinux"
NO_BTF = "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF)"
LIBRARY = "libbpf.so.1"
PROGRAMS = Path(__file__).parent / "programs"

_POINTER = ctypes.c_void_p
_FUNCTIONS: Mapping[str, tuple[Any, ...]] = {
    "libbpf_set_print": (_POINTER, _POINTER),
    "bpf_object__open_file": (_POINTER, ctypes.c_char_p, _POINTER),
    "bpf_object__load": (ctypes.c_int, _POINTER),
    "bpf_object__close": (None, _POINTER),
    "bpf_object__next_program": (_POINTER, _POINTER, _POINTER),
    "bpf_object__find_map_by_name": (_POINTER, _POINTER, ctypes.c_char_p),
    "bpf_object__next_map": (_POINTER, _POINTER, _POINTER),
    "bpf_map__name": (ctypes.c_char_p, _POINTER),
    "bpf_map__fd": (ctypes.c_int, _POINTER),
    "bpf_map__set_max_entries": (ctypes.c_int, _POINTER, ctypes.c_uint32),
    "bpf_map__set_initial_value": (ctypes.c_int, _POINTER, ctypes.c_char_p, ctypes.c_size_t),
    "bpf_map__initial_value": (_POINTER, _POINTER, ctypes.POINTER(ctypes.c_size_t)),
    "bpf_program__name": (ctypes.c_char_p, _POINTER),
    "bpf_program__fd": (ctypes.c_int, _POINTER),
    "bpf_program__set_autoload": (ctypes.c_int, _POINTER, ctypes.c_bool),
    "bpf_program__attach": (_POINTER, _POINTER),
    "bpf_link__destroy": (ctypes.c_int, _POINTER),
}
"""Name -> type of the result, then of the arguments."""


@cache
def library() -> ctypes.CDLL:
    """Raises OSError where it is not installed."""
    try:
        found = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError as error:
        raise NeedError(errno.ENOENT, str(error), LIBRARY, "install libbpf1") from error
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(found, name)
        function.restype = result
        function.argtypes = arguments
    found.libbpf_set_print(None)  # it would write to our stderr
    return found


def has_task_storage() -> bool:
    """Whether programs of tracepoints may keep something with a task: Linux 5.12."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return version is None or tuple(map(int, version.groups())) >= (5, 12)


def path_of(program: str) -> str:
    return f"{PROGRAMS}/{program}.bpf.o"


class BpfObject:
    """One object file in the kernel. Made by ``load``; ``close`` detaches and unloads it."""

    def __init__(
        self, handle: int, name: str, programs: Mapping[str, int], by_hand: frozenset[str]
    ) -> None:
        self._handle = handle
        self._name = name
        self._programs = programs
        self._by_hand = by_hand
        self._links: list[int] = []

    def attach(self) -> None:
        """Attach every program where its section says, but those that are run by hand. All of them
        or (OSError) none."""
        for name, program in self._programs.items():
            if name in self._by_hand:
                continue
            link = library().bpf_program__attach(program)
            if not link:
                error = _error(f"{self._name}: attach {name}")
                self.detach()
                raise error
            self._links.append(link)

    def detach(self) -> None:
        """The programs stay in the kernel, and nothing runs them."""
        for link in self._links:
            library().bpf_link__destroy(link)
        self._links = []

    def run(self, name: str, cpu: int) -> None:
        """Run one program on a CPU, in the middle of whatever that runs. ENXIO: it is offline."""
        run_on(library().bpf_program__fd(self._programs[name]), cpu)

    def map(self, name: str, key_words: int, value_words: int, *, per_cpu: bool = False) -> Map:
        """``KeyError`` where the object has no such map."""
        found = library().bpf_object__find_map_by_name(self._handle, name.encode())
        if not found:
            raise KeyError(name)
        return Map(library().bpf_map__fd(found), key_words, value_words, per_cpu)

    def variables(self, words: int) -> Map:
        """Its global variables, as the only entry of an array."""
        return Map(library().bpf_map__fd(_internal(self._handle, b".bss", self._name)), 1, words)

    def run_times(self) -> dict[str, RunTime]:
        """Per program, what was measured while statistics were on."""
        return {
            name: run_time(library().bpf_program__fd(program))
            for name, program in self._programs.items()
        }

    def skipped_runs(self) -> tuple[int, ...]:
        """Per program."""
        programs = self._programs.values()
        return tuple(skipped_runs(library().bpf_program__fd(program)) for program in programs)

    def memory_bytes(self) -> int:
        """Of all its maps. Those with an entry for each CPU grow with the CPUs that the machine may
        have."""
        lib, total = library(), 0
        found = lib.bpf_object__next_map(self._handle, None)
        while found:
            total += memory_bytes(lib.bpf_map__fd(found))
            found = lib.bpf_object__next_map(self._handle, found)
        return total

    def close(self) -> None:
        if not self._handle:
            return
        self.detach()
        library().bpf_object__close(self._handle)
        self._handle = 0


def load(
    name: str,
    *,
    options: bytes = b"",
    entries: Mapping[str, int] | None = None,
    without: frozenset[str] = frozenset(),
    by_hand: frozenset[str] = frozenset(),
) -> BpfObject:
    """``name``: of a file in ``programs/``. ``options``: the bytes of its constant ``options``.
    ``entries``: how many a map may hold, where not as many as the source says. ``without``:
    programs that are left out. ``by_hand``: programs for ``BpfObject.run``, never attached.

    Raises OSError; its ``filename`` says what was tried.
    """
    lib = library()
    if not os.path.exists(BTF):
        raise NeedError(errno.ENOENT, NO_BTF, BTF, NEW_KERNEL)
    path = path_of(name)
    handle = lib.bpf_object__open_file(path.encode(), None)
    if not handle:
        raise _error(f"{path}: open")
    try:
        if options:
            _set_options(handle, path, options)
        for map_name, count in (entries or {}).items():
            found = lib.bpf_object__find_map_by_name(handle, map_name.encode())
            lib.bpf_map__set_max_entries(found, count)
        programs = {}
        program = lib.bpf_object__next_program(handle, None)
        while program:
            program_name = lib.bpf_program__name(program).decode()
            if program_name in without:
                lib.bpf_program__set_autoload(program, False)
            else:
                programs[program_name] = program
            program = lib.bpf_object__next_program(handle, program)
        code = lib.bpf_object__load(handle)
        if code < 0:
            raise OSError(-code, os.strerror(-code), f"{path}: load")
    except BaseException:
        lib.bpf_object__close(handle)
        raise
    return BpfObject(handle, path, programs, by_hand)


def _set_options(handle: int, path: str, options: bytes) -> None:
    lib = library()
    found = _internal(handle, b".rodata", path)
    size = ctypes.c_size_t()
    if not lib.bpf_map__initial_value(found, ctypes.byref(size)):
        raise OSError(errno.EINVAL, "the object has no options", path)
    if size.value != len(options):
        raise OSError(errno.EINVAL, f"options take {size.value} bytes, not {len(options)}", path)
    code = lib.bpf_map__set_initial_value(found, options, len(options))
    if code < 0:
        raise OSError(-code, os.strerror(-code), f"{path}: options")


def _internal(handle: int, ending: bytes, path: str) -> int:
    """libbpf calls the maps of a section after the file and the section."""
    lib = library()
    found: int = lib.bpf_object__next_map(handle, None)
    while found and not lib.bpf_map__name(found).endswith(ending):
        found = lib.bpf_object__next_map(handle, found)
    if not found:
        raise OSError(errno.EINVAL, f"the object has no section {ending.decode()}", path)
    return found


def _error(what: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code), what)
