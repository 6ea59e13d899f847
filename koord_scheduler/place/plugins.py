"""All plugins that judge nodes, one line each, in the order in which they are asked."""

from __future__ import annotations

from koord_scheduler.model.cluster.arguments import Declared

PLUGINS: tuple[Declared, ...] = ()
