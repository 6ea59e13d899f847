"""Calls to the kubelet of this node, over TLS that is checked (the reference does not check it).

Kubelet has a certificate that the cluster has signed, for the addresses of the node, or one that it
made for itself, for its host name. Who reads that from kubelet's own directory on this node knows
that it is kubelet's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from koordlet.cluster.kubelet_config import KubeletConfig, KubeletError, read_configz
from koordlet.cluster.options import Options
from koordlet.cluster.shapes import PODS, Node, Pod
from koordlet.kube.answers import decoded, paged
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster, Material
from koordlet.kube.errors import CredentialsError, KubeError, NotSentError, UnusableError
from koordlet.state.listed import MOST_PODS

DEADLINE_S = 3.0
"""As in the reference."""
OWN_CERTIFICATE = "pki/kubelet.crt"
"""The one that kubelet made for itself, with the authority that it made for it."""
DEFAULT_PORT = 10250
PODS_AT_ONCE = 20
MOST_BYTES = 16 << 20
"""Of an answer: kubelet has no pages."""


class Place(NamedTuple):
    """``names``: those that the certificate may be for, the likeliest first."""

    host: str
    port: int
    names: tuple[str, ...]


def place_of(node: Node, preferred: str) -> Place:
    """Raises KubeletError where the Node has no address yet."""
    by_type = {each.type: each.address for each in reversed(node.status.addresses)}
    host = by_type.get(preferred) or by_type.get("InternalIP")
    if not host:
        raise KubeletError(f"Node {node.metadata.name} has no address of type {preferred}")
    names = dict.fromkeys((host, by_type.get("Hostname", ""), node.metadata.name))
    port = node.status.daemon_endpoints.kubelet_endpoint.port or DEFAULT_PORT
    return Place(host, port, tuple(name for name in names if name))


class Kubelet:
    """``credentials``: ours for the API server, which kubelet asks whether we may. Methods raise
    KubeletError, whatever went wrong."""

    def __init__(self, credentials: Cluster, options: Options) -> None:
        self._credentials = credentials
        self._options = options
        self._client: Client | None = None
        self._place: Place | None = None
        self._name = ""
        """Of the certificate, since it was found."""

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def config(self, place: Place) -> KubeletConfig:
        return read_configz(await self._get(place, "/configz"))

    async def pods(self, place: Place) -> AsyncIterator[Pod]:
        """Those that can be read; a bad one costs itself alone. Others have their turn between
        them: hundreds of pods take tens of milliseconds."""
        body = await self._get(place, "/pods/")
        try:
            items = paged(PODS, body, "/pods/", MOST_PODS).items or ()
        except UnusableError as error:
            raise KubeletError(str(error)) from None
        for number, raw in enumerate(items):
            if number % PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
            with contextlib.suppress(UnusableError):
                yield decoded(PODS, raw)

    async def _get(self, place: Place, path: str) -> bytes:
        if place != self._place:
            await self.close()
            self._place, self._name = place, ""
        names = (self._name,) if self._name else place.names
        failed: Exception | None = None
        for name in names:
            try:
                body = await self._to(place, name).raw(path, most_bytes=MOST_BYTES)
            except NotSentError as error:
                failed = error
                await self.close()
                if "certificate" not in str(error).lower():
                    break
                self._name = ""
            except (KubeError, CredentialsError) as error:
                failed = error
                break
            else:
                self._name = name
                return body
        raise KubeletError(f"kubelet {place.host}:{place.port}: {failed}")

    def _to(self, place: Place, name: str) -> Client:
        if self._client is None:
            self._client = Client(
                self._cluster(place, name), per_second=10, burst=10, deadline_s=DEADLINE_S
            )
        return self._client

    def _cluster(self, place: Place, name: str) -> Cluster:
        host = f"[{place.host}]" if ":" in place.host else place.host
        ours = self._credentials
        return Cluster(
            server=f"https://{host}:{place.port}",
            source="kubelet",
            ca=Material(text=self._authorities()),
            server_name=name,
            certificate=ours.certificate,
            key=ours.key,
            token=ours.token,
        )

    def _authorities(self) -> bytes:
        if self._options.kubelet_ca != "auto":
            return Material(self._options.kubelet_ca).read()
        found = [self._credentials.ca.read()] if self._credentials.ca is not None else []
        with contextlib.suppress(CredentialsError):  # the cluster has signed the one in use
            found.append(Material(f"{self._options.kubelet_dir}/{OWN_CERTIFICATE}").read())
        if not any(found):
            raise CredentialsError(
                f"no certificate to check kubelet's against: {self._options.kubelet_dir}/"
                f"{OWN_CERTIFICATE} cannot be read; set cluster.kubelet_ca"
            )
        return b"\n".join(found)
