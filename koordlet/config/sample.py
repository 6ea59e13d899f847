"""The annotated sample ``koordlet.toml``: every key at its default, commented out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import msgspec
import msgspec.inspect as mi

from koordlet.config.origins import structure
from koordlet.config.schema import EXAMPLE_APPLICATION, PLUGINS, Application, Config
from koordlet.config.show import meaning, needs_restart, toml_text
from koordlet.protocol.decode import describe
from koordlet.protocol.errors import join
from koordlet.protocol.slo import Section
from koordlet.protocol.slo_defaults import DEFAULTS

_HEAD = """\
# koordlet.toml, every key with its default.
#
# Lines that begin with "#" and a space are comments; lines that begin with "#" alone are settings:
# remove the "#" to change one. `koordlet config check FILE` checks the file; `koordlet config show`
# shows the values in force and where they came from. koordlet reloads a changed file at once; keys
# marked (restart) take effect at the next start. A file with an error is refused as a whole.
"""
_SLO_HEAD = """\
# You can set the NodeSLO keys below here or in slo.file; the keys here win. Where the block of a
# class has enable = false, neutral values replace its keys. The lists (blocks, hostApplications)
# are in docs/configuration.md. docs/concepts describes what each strategy does with the keys;
# `koordlet strategies` shows what the kernel of this node lacks for them.
"""
_WIDTH = 96


def sample() -> str:
    """The text of the sample."""
    parts = [_HEAD.rstrip(), *_table(Config(), "")]
    parts += ["", _SLO_HEAD.rstrip(), *_slo(DEFAULTS, "slo", set())]
    parts += _application()
    parts += ["", *_prose(PLUGINS), "#[plugins.NAME]", "#enable = true"]
    return "\n".join(parts) + "\n"


def _table(value: msgspec.Struct, path: str) -> Iterator[str]:
    """Keys first, then the tables below, as TOML wants it."""
    nested = []
    for field in structure(type(value)).fields:
        child = getattr(value, field.name)
        where = join(path, field.encode_name)
        if isinstance(child, msgspec.Struct):
            text = meaning(field.type) or (type(child).__doc__ or "").partition("\n")[0]
            nested += ["", f"[{where}]", *_prose(text), *_table(child, where)]
        elif path:
            yield from _key(field, child)
    yield from nested


def _key(field: mi.Field, value: object) -> Iterator[str]:
    restart = " (restart)" if needs_restart(field.type) else ""
    yield from _prose(f"{meaning(field.type)} {_kind(field.type)}{restart}")
    yield f"#{field.encode_name} = {toml_text(field.type, value)}"


def _kind(info: mi.Type) -> str:
    return f"[{describe(info)}]"


def _slo(value: Section, path: str, described: set[type]) -> Iterator[str]:
    """Keys without a default are named in a comment. A kind of block that stands there for the
    second time is not explained again."""
    first = type(value) not in described
    described.add(type(value))
    unset, nested = [], []
    for field in structure(type(value)).fields:
        child, where = getattr(value, field.name), join(path, field.encode_name)
        if isinstance(child, Section):
            nested += ["", f"[{where}]", *_slo(child, where, described)]
        elif child is None:
            unset += _prose(f"{field.encode_name}: {meaning(field.type)} {_kind(field.type)}")
        else:
            yield from _key(field, child) if first else list(_key(field, child))[-1:]
    if unset and first:
        yield "# Not set by default:"
        yield from unset
    yield from nested


def _application() -> Iterator[str]:
    yield ""
    yield from _prose((Application.__doc__ or "").partition("\n")[0])
    yield "#[[applications]]"
    for field in structure(Application).fields:
        yield from _prose(f"{field.encode_name}: {meaning(field.type)} {_kind(field.type)}")
    for key, example in EXAMPLE_APPLICATION.items():
        yield f'#{key} = "{example}"'


def _prose(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False
    )
