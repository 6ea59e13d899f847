"""DeviceShare: GPUs, RDMA cards, FPGAs and NPUs, whole and in parts
(docs/reference/central.md 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints, Rows
from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.model.cluster.verdict import (
    FITS,
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
    completed,
    insufficient,
    node_score,
    offered,
)
from koord_scheduler.place.device.arguments import DeviceShareArgs, Model, device_args
from koord_scheduler.place.device.free import NAME, Scope, devices_lent
from koord_scheduler.place.device.hints import Hints, device_hints
from koord_scheduler.place.device.reading import Templates, read_templates
from koord_scheduler.place.device.request import Request, asks_for_devices, read_request, type_of
from koord_scheduler.place.device.sites import site_of
from koord_scheduler.place.device.summary import node_summaries, node_summary
from koord_scheduler.place.device.types import DEVICES, Grant
from koord_scheduler.place.device.wire import binding_annotations, binding_labels, read_grant
from koord_scheduler.place.grants import NO_LOAN, Loan, loan_of
from koord_scheduler.place.node_states import States, Tries

NUMA, RESERVATION = "NodeNUMAResource", "Reservation"
OTHER_PROVIDER = reason(
    NAME, "node(s) GPU isolation provider is not the one of the pod", unresolvable=True
)


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
        self._states: States[Site | None] = States(site_of, lambda site: site)
        self._tries = Tries(NAME, self._states, read_request, self._attempt)
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
        self._tries.loans = getattr(plugins.get(RESERVATION), "loans", None)

    def set_templates(self, cluster: Cluster, tree: Any) -> None:
        """``tree``: of the YAML in the ConfigMap; None where there is none."""
        templates: Templates = read_templates(tree)
        if templates == self.policy.templates:
            return
        self.policy = self.policy._replace(templates=templates)
        self._tries.forget()
        for name in cluster.all(DEVICES):
            row = cluster.row.get(name)
            if row is not None:
                cluster.touch(row)

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return asks_for_devices(pod) and (
            bool(cluster.all(DEVICES)) or self._tries.of(pod).code != FITS
        )

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        tried = self._tries.of(pod)
        request = tried.ask
        if request is None:
            return Verdict(np.full(len(rows), tried.code, np.int16))
        why, score = self._tries.judge(tried, self._states.numbers(cluster)[rows])
        for i in self._tries.let_in(
            cluster, pod, rows, why, lambda row, loan: self._fits_with(cluster, request, row, loan)
        ):
            why[i] = FITS
        return Verdict(why, score)

    def allocate(
        self, cluster: Cluster, pod: Pod, row: int, grants: Mapping[str, Any]
    ) -> Grant | Refusal | None:
        tried = self._tries.of(pod.cls)
        if tried.code != FITS:
            return Refusal(tried.code)
        loan = loan_of(grants)
        site = site_of(cluster, row, loan)
        if tried.ask is None or site is None:
            return None
        found = self._choose(cluster, tried.ask, site, row, _numa(grants), loan)
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

    def hints(self, cluster: Cluster, pod: Pod, row: int, loan: Loan = NO_LOAN) -> Hints:
        """For the NUMA manager: a provider of hints
        (docs/reference/central.md 5.4). Empty: it does not
        care."""
        tried = self._tries.of(pod.cls)
        site = site_of(cluster, row, loan)
        if site is None or tried.ask is None:
            return {}
        if self.args.disable_device_numa_topology_alignment:
            return {}
        return device_hints(tried.ask, site, self.policy)

    def offers(self, cluster: Cluster, pod: PodClass, rows: Rows, most: int) -> Ints:
        """How many such pods the devices of each row let in, never fewer than do."""
        return self._tries.offers(
            cluster, pod, rows, most, lambda request, site: offered(request, site, most)
        )

    def _attempt(self, request: Request, site: Site | None) -> tuple[int, int]:
        if site is None:
            return FITS, 0
        return self._try(request, site), node_score(request, site, self.policy)

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
        numa: frozenset[int] | None,
        loan: Loan,
    ) -> Chosen | int:
        code = self._refused(request, site)
        if code != FITS:
            return code
        if self.args.disable_device_numa_topology_alignment:
            numa = None
        if not loan.keys:
            return allocate(request, site, self.policy, Scope(numa))
        lent = devices_lent(cluster.claims_on(row).values(), loan)
        devices = frozenset(lent)
        types = frozenset(map(type_of, loan.restricted))
        kept_to = {key: left for key, left in lent.items() if key[0] in types}
        scope = Scope(numa, most=kept_to, only=frozenset(kept_to))
        if not loan.whole:
            found = allocate(request, site, self.policy, scope._replace(only=devices))
            if not isinstance(found, int):
                return found
        found = allocate(request, site, self.policy, scope._replace(first=devices))
        if isinstance(found, int) or not loan.whole:
            return found
        given = {(of, each.minor) for of, parts in found.items() for each in parts}
        return found if given >= devices else insufficient(min(of for of, _ in devices - given))

    def serves(self, cluster: Cluster, pod: PodClass, row: int, loan: Loan) -> bool:
        """Return whether such a pod gets what it asks for, and all of a loan that is whole."""
        request = self._tries.of(pod).ask
        site = site_of(cluster, row, loan)
        if request is None or site is None:
            return True
        return not isinstance(self._choose(cluster, request, site, row, None, loan), int)

    def _fits_with(self, cluster: Cluster, request: Request, row: int, loan: Loan) -> bool:
        site = site_of(cluster, row, loan)
        if site is None:
            return False
        if loan.restricted or loan.whole:
            return not isinstance(self._choose(cluster, request, site, row, None, loan), int)
        return self._try(request, site) == FITS

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
    return DeviceShare(device_args(args))


def _numa(grants: Mapping[str, Any]) -> frozenset[int] | None:
    """The NUMA nodes that were chosen for the pod, None where none were."""
    nodes: Sequence[int] | None = getattr(grants.get(NUMA), "numa_nodes", None)
    return frozenset(nodes) if nodes else None
