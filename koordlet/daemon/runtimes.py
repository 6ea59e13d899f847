"""The daemon's doors to container runtimes: the NRI plugin, and the hook server for a CRI proxy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import structlog

from koordlet.config.schema import Config
from koordlet.decision.answer import Combined
from koordlet.engine.answers import Asked
from koordlet.engine.engine import Engine
from koordlet.engine.parts import reported_file
from koordlet.engine.updates import Updates
from koordlet.hookserver.config_file import (
    FILE_NAME,
    advertised,
    remove_config,
    write_config,
)
from koordlet.hookserver.requested import Requested, Wishes
from koordlet.hookserver.server import HookServer
from koordlet.nri.errors import NotConnectedError, UnsafeUpdateError
from koordlet.nri.options import Options
from koordlet.nri.plugin import Plugin

log = structlog.get_logger()


class Runtimes:
    """``plugin`` and ``hook_server`` are None where they are switched off."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        parts, config = engine.parts, engine.loaded.config
        self._updates = Updates()
        asked = Asked(engine, parts.reported, self._answered)
        self._pushing: asyncio.Task[None] | None = None
        engine.missed.asked = self._asks
        self.plugin: Plugin | None = None
        self.hook_server: HookServer | None = None
        if config.nri.enable:
            options = Options(config.nri.socket, config.nri.plugin_name, config.nri.plugin_index)
            self.plugin = Plugin(
                asked, parts.reported["nri"], options, held=self._updates.synchronized
            )
        if config.hook_server.enable:
            file = reported_file(parts.host, config, "requested", Wishes)
            self._requested = Requested(file)
            if file.damage:
                parts.problems["requested"] = file.damage
            self.hook_server = HookServer(
                asked, config.hook_server.socket, requested=self._requested
            )

    async def talk_nri(self) -> None:
        """Until cancelled."""
        if self.plugin is not None:
            await self.plugin.run()

    async def start_hook_server(self) -> None:
        """Raises SocketError and OSError."""
        if self.hook_server is not None:
            await self.hook_server.start()

    def advertise(self) -> None:
        """Tell the proxy where the hook server is, or that there is none any more. Raises
        OSError."""
        config = self._config.hook_server
        path = os.path.join(config.config_dir, FILE_NAME)
        if not config.enable:
            remove_config(path, config.socket)
            return
        stages = advertised(stage for hook in self._engine.hooks for stage in hook.stages)
        write_config(path, config.socket, config.failure_policy, stages)

    async def stop(self) -> None:
        if self._pushing is not None:
            self._pushing.cancel()
        if self.hook_server is not None:
            await self.hook_server.stop()
            self._requested.close()

    def push(self) -> None:
        """Tell the runtime what it did not ask about, where it survives that. Returns at once.

        Elsewhere it learns of it when kubelet updates the container: our answer has all values.
        """
        plugin = self.plugin
        if plugin is None or not plugin.takes_updates:
            return
        if self._engine.observing or self._pushing is not None:
            return
        wanted = self._updates.due(self._engine.parts.reported["nri"].pods(), self._engine.wanted)
        if wanted:
            self._pushing = asyncio.get_running_loop().create_task(self._push(plugin, wanted))

    def _asks(self) -> bool:
        """Whether a runtime asks about the next container, as far as one can see."""
        by_nri = self.plugin is not None and self.plugin.is_connected
        return by_nri or (self.hook_server is not None and self.hook_server.connections > 0)

    def _answered(self, origin: str, container_id: str, combined: Combined) -> None:
        """Kept only for a runtime that is pushed to: nobody else would ever ask, or forget."""
        if origin == "nri" and self.plugin is not None and self.plugin.takes_updates:
            self._updates.answered(container_id, combined)

    async def _push(self, plugin: Plugin, wanted: Mapping[str, Combined]) -> None:
        try:
            failed = await plugin.update(wanted)
            if failed:
                log.warning("the runtime refused updates of containers", containers=failed)
            self._updates.pushed(wanted)
        except (NotConnectedError, UnsafeUpdateError):
            pass  # after the next synchronization everything is compared again
        finally:
            self._pushing = None

    @property
    def _config(self) -> Config:
        return self._engine.loaded.config
