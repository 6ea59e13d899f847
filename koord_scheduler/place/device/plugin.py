"""DeviceShare: GPUs, RDMA cards, FPGAs and NPUs, whole and in parts (spec/central.md 6)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from koord_scheduler.model.cluster.arguments import Args, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Bools, Ints, Rows
from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.model.cluster.verdict import (
    FITS,
    Codes,
    Normalize,
    Plugin,
    Refusal,
    Verdict,
    reason,
)
from koord_scheduler.place.device.allocate import (
    Chosen,
    Policy,
    Site,
    allocate,
    cards_of,
    completed,
    node_score,
)
from koord_scheduler.place.device.free import ALL, NAME, Scope, held_by
from koord_scheduler.place.device.hints import Hints, device_hints
from koord_scheduler.place.device.reading import Templates, read_templates
from koord_scheduler.place.device.request import (
    FPGA_SHARE,
    NPU_CORE,
    Request,
    RequestError,
    asks_for_devices,
    read_request,
    type_of,
)
from koord_scheduler.place.device.sites import Sites, site_of
from koord_scheduler.place.device.summary import node_summaries, node_summary
from koord_scheduler.place.device.types import DEVICES, Grant
from koord_scheduler.place.device.wire import binding_annotations, binding_labels, read_grant
from koord_scheduler.place.reservation.reservation import RESERVATIONS, RESTRICTED
from koordlet.protocol.resources import GPU_MEMORY, GPU_MEMORY_RATIO, RDMA_SHARE

NUMA, RESERVATION = "NodeNUMAResource", "Reservation"
OTHER_PROVIDER = reason(
    NAME, "node(s) GPU isolation provider is not the one of the pod", unresolvable=True
)
Reservations = Callable[[Cluster, PodClass, int], Iterable[str]]
"""Names of the reservations on a row that such a pod may use."""


class Weight(msgspec.Struct, frozen=True):
    name: str
    weight: int = 1


_WEIGHTS = tuple(Weight(name) for name in (GPU_MEMORY_RATIO, GPU_MEMORY, RDMA_SHARE, FPGA_SHARE))


class Scoring(msgspec.Struct, frozen=True):
    type: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"
    resources: tuple[Weight, ...] = _WEIGHTS


class TemplatesConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The ConfigMap has the templates under the key ``data.yaml``."""

    config_map_namespace: str = "koordinator-system"
    config_map_name: str = "gpu-shared-resource-templates"
    matched_resources: tuple[str, ...] = (NPU_CORE,)


class Model(msgspec.Struct, frozen=True):
    vendor: str = ""
    model: str = ""


class DeviceShareArgs(Args, frozen=True, kw_only=True):
    """``device_plugin_adaption``: the reference's feature gate DevicePluginAdaption, as far as
    annotations go that every GPU has."""

    scoring_strategy: Scoring = Scoring()
    disable_device_numa_topology_alignment: bool = msgspec.field(
        default=False, name="disableDeviceNUMATopologyAlignment"
    )
    gpu_shared_resource_templates_config: TemplatesConfig = msgspec.field(
        default=TemplatesConfig(), name="gpuSharedResourceTemplatesConfig"
    )
    gpu_share_unsupported_models: tuple[Model, ...] = msgspec.field(
        default=(), name="gpuShareUnsupportedModels"
    )
    device_plugin_adaption: bool = False


class _Known:
    """Of one class: what it asks for, and the verdict on each site that it was tried on."""

    __slots__ = ("code", "epoch", "known", "request", "score", "why")

    def __init__(self, request: Request | None, code: int) -> None:
        self.request, self.code = request, code
        self.forget(0)

    def forget(self, epoch: int) -> None:
        self.epoch = epoch
        self.known: Bools = np.zeros(0, np.bool_)
        self.why: Codes = np.zeros(0, np.int16)
        self.score: Ints = np.zeros(0, np.int64)

    def grow(self, size: int) -> None:
        more = size - len(self.known)
        if more > 0:
            more += size
            self.known = np.pad(self.known, (0, more))
            self.why = np.pad(self.why, (0, more))
            self.score = np.pad(self.score, (0, more))


class DeviceShare:
    name = NAME
    local = True
    normalize = Normalize.DEFAULT

    def __init__(self, args: DeviceShareArgs) -> None:
        self.args = args
        self.policy = Policy(
            weights={each.name: each.weight for each in args.scoring_strategy.resources},
            strategy=args.scoring_strategy.type,
            template_resources=frozenset(
                args.gpu_shared_resource_templates_config.matched_resources
            ),
        )
        self._sites = Sites()
        self._known: weakref.WeakKeyDictionary[PodClass, _Known] = weakref.WeakKeyDictionary()
        self._reservations: Reservations | None = None
        self.not_well_planned: set[str] = set()
        """Nodes that are labelled as well planned, and lately had no secondary devices beside the
        primary ones that were free."""
        self.services = {
            "nodeDeviceSummaries": lambda cluster, names: node_summaries(cluster),
            "nodeDeviceSummaries/{name}": lambda cluster, names: node_summary(
                cluster, names["name"]
            ),
        }

    def connect(self, plugins: Mapping[str, Plugin]) -> None:
        """Reservations say which of them a pod may use on a node."""
        self._reservations = getattr(plugins.get(RESERVATION), "usable", None)

    def set_templates(self, cluster: Cluster, tree: Any) -> None:
        """``tree``: of the YAML in the ConfigMap; None where there is none."""
        templates: Templates = read_templates(tree)
        if templates == self.policy.templates:
            return
        self.policy = self.policy._replace(templates=templates)
        self._known = weakref.WeakKeyDictionary()
        for name in cluster.all(DEVICES):
            row = cluster.row.get(name)
            if row is not None:
                cluster.touch(row)

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return asks_for_devices(pod) and (bool(cluster.all(DEVICES)) or self._of(pod).code != FITS)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        known = self._of(pod)
        if known.code != FITS:
            return Verdict(np.full(len(rows), known.code, np.int16))
        if known.request is None:
            return Verdict(np.zeros(len(rows), np.int16))
        numbers = self._sites.numbers(cluster)[rows]
        self._try_new(known, known.request, numbers)
        why, score = known.why[numbers], known.score[numbers]
        if self._reservations is not None:
            refused = (why != FITS) & np.isin(rows, cluster.reserved_rows())
            for i in np.flatnonzero(refused).tolist():
                names = self._reservations(cluster, pod, int(rows[i]))
                if any(self._fits_in(cluster, known.request, int(rows[i]), n) for n in names):
                    why[i] = FITS
        return Verdict(why, score)

    def allocate(
        self, cluster: Cluster, pod: Pod, row: int, grants: Mapping[str, Any]
    ) -> Grant | Refusal | None:
        known = self._of(pod.cls)
        if known.code != FITS:
            return Refusal(known.code)
        reservation = _reservation(grants)
        site = site_of(cluster, row, reservation)
        if known.request is None or site is None:
            return None
        found = self._choose(cluster, known.request, site, row, grants, reservation)
        if site.well_planned:
            self._note_plan(cluster, row, isinstance(found, int))
        if isinstance(found, int):
            return Refusal(found)
        return self._grant(cluster, site, row, found)

    def _note_plan(self, cluster: Cluster, row: int, failed: bool) -> None:
        node = cluster.nodes[row]
        if node is not None and failed:
            self.not_well_planned.add(node.name)
        elif node is not None:
            self.not_well_planned.discard(node.name)

    def annotations(self, pod: Pod, grant: Grant) -> Mapping[str, str]:
        return binding_annotations(grant, adapted=self.args.device_plugin_adaption)

    def labels(self, pod: Pod, grant: Grant) -> Mapping[str, str]:
        """Labels that the binding gives the pod, beside its annotations."""
        return binding_labels(pod, grant)

    def recognise(self, pod: Pod) -> Grant | None:
        return read_grant(pod)

    def hints(self, cluster: Cluster, pod: Pod, row: int) -> Hints:
        """For the NUMA manager: a provider of hints (spec/central.md 5.4). Empty: it does not
        care."""
        known = self._of(pod.cls)
        site = site_of(cluster, row)
        if site is None or known.request is None:
            return {}
        if self.args.disable_device_numa_topology_alignment:
            return {}
        return device_hints(known.request, site, self.policy)

    def offers(self, cluster: Cluster, pod: PodClass, rows: Rows, most: int) -> Ints:
        """How many such pods the devices of each row let in, never fewer than do."""
        known = self._of(pod)
        numbers = self._sites.numbers(cluster)[rows]
        if known.code != FITS:
            return np.zeros(len(rows), np.int64)
        if known.request is None:
            return np.full(len(rows), most, np.int64)
        distinct, where = np.unique(numbers, return_inverse=True)
        found = [_most(known.request, self._sites.all[n], most) for n in distinct.tolist()]
        counts: Ints = np.array(found, np.int64)[where]
        if self._reservations is not None:
            for i in np.flatnonzero(np.isin(rows, cluster.reserved_rows())).tolist():
                if any(True for _ in self._reservations(cluster, pod, int(rows[i]))):
                    counts[i] = most
        return counts

    def _of(self, pod: PodClass) -> _Known:
        known = self._known.get(pod)
        if known is None:
            try:
                known = _Known(read_request(pod), FITS)
            except RequestError as error:
                known = _Known(None, reason(NAME, str(error), unresolvable=True))
            self._known[pod] = known
        return known

    def _try_new(self, known: _Known, request: Request, numbers: Ints) -> None:
        sites = self._sites
        if known.epoch != sites.epoch:
            known.forget(sites.epoch)
        known.grow(len(sites.all))
        fresh = numbers[~known.known[numbers]]
        for number in np.unique(fresh).tolist():
            site = sites.all[number]
            known.known[number] = True
            if site is not None:
                known.why[number] = self._try(request, site)
                known.score[number] = node_score(request, site, self.policy)

    def _try(self, request: Request, site: Site) -> int:
        code = self._refused(request, site)
        if code != FITS:
            return code
        found = allocate(request, site, self.policy, judging=True)
        return found if isinstance(found, int) else FITS

    def _refused(self, request: Request, site: Site) -> int:
        if not request.shares_gpu:
            return FITS
        if Model(site.vendor, site.model) in self.args.gpu_share_unsupported_models:
            text = f'model "{site.model}" of vendor "{site.vendor}" does not support GPU Share'
            return reason(NAME, text, unresolvable=True)
        if request.provider and request.provider.lower() != site.provider.lower():
            return OTHER_PROVIDER
        return FITS

    def _choose(
        self,
        cluster: Cluster,
        request: Request,
        site: Site,
        row: int,
        grants: Mapping[str, Any],
        reservation: str,
    ) -> Chosen | int:
        code = self._refused(request, site)
        if code != FITS:
            return code
        numa = _numa(grants)
        if self.args.disable_device_numa_topology_alignment:
            numa = None
        if reservation:
            only = held_by(cluster.claims_on(row).values(), reservation)
            found = allocate(request, site, self.policy, Scope(numa, only))
            if not isinstance(found, int) or _restricts(cluster, row, reservation, request):
                return found
        return allocate(request, site, self.policy, Scope(numa) if numa is not None else ALL)

    def _fits_in(self, cluster: Cluster, request: Request, row: int, reservation: str) -> bool:
        site = site_of(cluster, row, reservation)
        return site is not None and self._try(request, site) == FITS

    def _grant(self, cluster: Cluster, site: Site, row: int, chosen: Chosen) -> Grant:
        node, devices = cluster.nodes[row], cluster.get(DEVICES, row)
        ids = devices.ids if devices is not None else {}
        totals = {(d.type, d.minor): dict(d.total) for d in site.shape.devices}
        return Grant(
            devices={
                of: tuple(
                    msgspec.structs.replace(
                        each,
                        amounts=completed(each, totals[of, each.minor]),
                        id=ids.get((of, each.minor), ""),
                    )
                    for each in given
                )
                for of, given in chosen.items()
            },
            node=node.name if node is not None else "",
            granted_s=cluster.now_s,
        )


def make(args: Mapping[str, Any]) -> DeviceShare:
    """Raises ArgumentError."""
    return DeviceShare(read_args(NAME, DeviceShareArgs, args))


def _numa(grants: Mapping[str, Any]) -> frozenset[int] | None:
    """The NUMA nodes that were chosen for the pod, None where none were."""
    nodes: Sequence[int] | None = getattr(grants.get(NUMA), "numa_nodes", None)
    return frozenset(nodes) if nodes else None


def _reservation(grants: Mapping[str, Any]) -> str:
    name: str = getattr(grants.get(RESERVATION), "reservation", "")
    return name


def _restricts(cluster: Cluster, row: int, reservation: str, request: Request) -> bool:
    """Whether its users get such devices from the reservation alone (spec/central.md 7.6)."""
    found = (cluster.get(RESERVATIONS, row) or {}).get(reservation)
    return (
        found is not None
        and found.policy == RESTRICTED
        and any(type_of(name) in request.types for name in found.restricted)
    )


def _most(request: Request, site: Site | None, most: int) -> int:
    if site is None:
        return most
    cards = cards_of(request, site)
    for of, wanted in request.types.items():
        if all(wanted.each.values()):
            parts = sum(
                min(card.free.get(name, 0) // need for name, need in wanted.each.items())
                for card in cards.get(of, ())
            )
            most = min(most, parts // (1 if wanted.all_of_them else wanted.instances))
    return most
