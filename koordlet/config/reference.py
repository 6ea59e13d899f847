"""docs/configuration.md: the same keys as the sample, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import msgspec.inspect as mi

from koordlet.config.origins import structure
from koordlet.config.schema import PLUGINS, Application, Config
from koordlet.config.show import meaning, needs_restart, toml_text
from koordlet.protocol import slo
from koordlet.protocol.decode import describe, plain
from koordlet.protocol.errors import join
from koordlet.protocol.slo_defaults import DEFAULTS, NONE, NONE_CLASSES

_HEAD = """\
# Configuration

<!-- Written by `make docs` from koordlet/config/schema.py, the declarations of the parts and
koordlet/protocol/slo.py; a test keeps it in step. -->

koordlet reads `/etc/koordlet/koordlet.toml`. Every key has a default, so an empty file is valid.
The annotated sample is `koordlet/config/koordlet.toml`.

- `koordlet config check FILE` reports every error in one run, with file, line and key; for a
  mistyped name it suggests the nearest valid one. It needs no running daemon, and finds what
  `koordlet run` would find on this machine: a missing group, a directory that cannot be created.
  `--file-only` checks only the file. A warning names what is valid but probably not intended.
- `koordlet config show` prints the values in force and where each came from: `default`,
  `koordlet.toml:12`, the name of `slo.file`, or `disabled`.
- SIGHUP or a changed file reloads the configuration. A file with any error is refused as a whole:
  the previous configuration stays in force and `koordlet status` says so. Keys marked *restart*
  take effect at the next start.
- Durations use Go's syntax (`300ms`, `5m`, `1h30m`), CPU lists the kernel's (`0-3,8`).
- Amounts are Kubernetes quantities. CPU: `"500m"` is half a CPU, `"2"` two. Bytes and bits per
  second are whole numbers, alone or with `k`, `M`, `G`, `T`, `P`, `E` (powers of 1000) or `Ki`,
  `Mi`, `Gi`, `Ti`, `Pi`, `Ei` (powers of 1024): `"128Mi"`, `"1.5Gi"`, `1048576`. The suffix `m`
  means a thousandth in Kubernetes, so `"512m"` bytes is refused instead of read as 1 byte.
"""
_SLO_HEAD = """\
## `[slo.*]`: the NodeSLO

The keys are those of a NodeSLO in a cluster, in any letter case. Set them below `[slo]`, or in
`slo.file`, which can hold a NodeSLO object, its bare `spec`, a `slo-controller-config` ConfigMap,
or its bare `data`, in YAML or JSON. In a ConfigMap, the first entry of `nodeStrategies` whose
`nodeSelector` matches `node.labels` overrides the cluster's strategy. Inline keys win over the
file, and the file wins over the built-in defaults. An absent key keeps the lower layer's value; an
explicit `0` or `false` replaces it.

Each strategy's page in `docs/concepts/` says which keys it uses. A key that asks for something that
the node's kernel lacks changes nothing; `koordlet strategies` and `koordlet doctor` say so, and
why.

```toml
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressThresholdPercent = 65
```

This switches CPU suppression on and arms memory eviction: koordlet evicts best-effort pods while
more than `memoryEvictThresholdPercent` (70 %) of the node's memory is in use. To evict nobody, set
`enable = false` in `[strategies.memory-evict]`. `koordlet status` and `koordlet config check` list
what is armed.
"""
_CLASSES_HEAD = """\
### `slo.resourceQOSStrategy.<class>`

Classes are `lsrClass` (also for LSE pods), `lsClass`, `beClass`, `systemClass` and `cgroupRoot`
(only `blkioQOS`). Where `enable` of `cpuQOS`, `resctrlQOS` or `memoryQOS` is false, the block has
the values in the column *off*.
"""


def reference() -> str:
    """The text of docs/configuration.md."""
    lines = [_HEAD, *_tables(Config(), "")]
    lines += ["## `[[applications]]`", "", _first_line(Application), ""]
    lines += [*_rows(Application, None), "", "## `[plugins.NAME]`", "", PLUGINS, ""]
    lines += [_SLO_HEAD, *_strategies(), _CLASSES_HEAD]
    lines += [*_blocks(), *_lists()]
    return "\n".join(lines).rstrip() + "\n"


def _tables(value: msgspec.Struct, path: str) -> Iterator[str]:
    for field in structure(type(value)).fields:
        child, where = getattr(value, field.name), join(path, field.encode_name)
        if not isinstance(child, msgspec.Struct):
            continue
        yield f"## `[{where}]`" if not path else f"### `[{where}]`"
        yield ""
        yield meaning(field.type) or _first_line(type(child))
        yield ""
        if any(not _is_struct(f.type) for f in structure(type(child)).fields):
            yield from _rows(type(child), child)
            yield ""
        yield from _tables(child, where)


def _rows(cls: type[msgspec.Struct], defaults: msgspec.Struct | None) -> Iterator[str]:
    yield "| Key | Value | Default | Meaning |"
    yield "|---|---|---|---|"
    for field in structure(cls).fields:
        if _is_struct(field.type):
            continue
        if defaults is None:
            default = "required" if field.required else _code(field.type, field.default)
        else:
            default = _code(field.type, getattr(defaults, field.name))
        restart = " *restart*" if needs_restart(field.type) else ""
        kind, text = _cell(describe(field.type)), _cell(meaning(field.type) + restart)
        yield f"| `{field.encode_name}` | {kind} | {default} | {text} |"


def _strategies() -> Iterator[str]:
    strategy = DEFAULTS.resource_qos_strategy
    assert strategy is not None
    sections: list[tuple[str, slo.Section | None]] = [
        ("resourceUsedThresholdWithBE", DEFAULTS.resource_used_threshold_with_be),
        ("cpuBurstStrategy", DEFAULTS.cpu_burst_strategy),
        ("systemStrategy", DEFAULTS.system_strategy),
        ("resourceQOSStrategy.policies", strategy.policies),
    ]
    for name, section in sections:
        assert section is not None
        yield from (f"### `slo.{name}`", "", *_rows(type(section), section), "")


def _blocks() -> Iterator[str]:
    """One table for each block of a class, a column for each class's default."""
    strategy = DEFAULTS.resource_qos_strategy
    for block in structure(slo.ResourceQOS).fields:
        values = [getattr(getattr(strategy, name), block.name) for name in NONE_CLASSES]
        off = getattr(NONE, block.name)
        yield from (f"#### `{block.encode_name}`", "")
        yield "| Key | Value | LSR | LS | BE | SYSTEM | off | Meaning |"
        yield "|---|---|---|---|---|---|---|---|"
        for field in structure(type(off)).fields:
            cells = [_code(field.type, getattr(value, field.name)) for value in (*values, off)]
            kind, text = _cell(describe(field.type)), _cell(meaning(field.type))
            yield f"| `{field.encode_name}` | {kind} | {' | '.join(cells)} | {text} |"
        yield ""


def _lists() -> Iterator[str]:
    kinds: Iterable[tuple[str, type[slo.Section]]] = (
        ("blkioQOS.blocks[]", slo.BlockCfg),
        ("blkioQOS.blocks[].ioCfg", slo.IOCfg),
        ("hostApplications[]", slo.HostApplicationSpec),
        ("hostApplications[].cgroupPath", slo.CgroupPath),
    )
    for name, cls in kinds:
        yield from (f"### `{name}`", "", *_rows(cls, None), "")


def _is_struct(info: mi.Type) -> bool:
    info = plain(info)
    members = info.types if isinstance(info, mi.UnionType) else (info,)
    return any(isinstance(member, mi.StructType) for member in members)


def _code(info: mi.Type, value: object) -> str:
    return "" if value is None else f"`{toml_text(info, value)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").partition("\n")[0]
