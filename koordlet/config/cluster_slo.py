"""The NodeSLO of a cluster in the place of ``slo.file``."""

from __future__ import annotations

import msgspec

from koordlet.config.lines import Lines
from koordlet.config.load import Loaded
from koordlet.config.origins import Names, slo_origins
from koordlet.protocol.merge import overlay
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.protocol.slo_defaults import effective


def with_node_slo(loaded: Loaded, theirs: NodeSLOSpec, origin: str) -> Loaded:
    """``loaded``, which is as its files say, with ``theirs`` instead of ``slo.file``; its inline
    keys stay above it. ``origin``: what the values of ``theirs`` are said to come from."""
    spec = effective(overlay(theirs, loaded.inline) or NodeSLOSpec())
    names = Names("", origin, Lines({}))
    origins = {
        # A key of the file keeps its line, which the tree of values does not have.
        path: found or loaded.origins.get(path, found)
        for path, found in slo_origins(spec, loaded.inline, theirs, names).items()
    }
    kept = {path: text for path, text in loaded.origins.items() if not path.startswith("slo.")}
    own = {path: text for path, text in loaded.origins.items() if path == "slo.file"}
    return msgspec.structs.replace(loaded, slo=spec, origins=kept | own | origins)
