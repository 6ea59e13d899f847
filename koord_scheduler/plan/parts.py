"""What a scheduler is made of: the engines of its profiles, and what they share."""

from __future__ import annotations

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.model.cluster.verdict import Gate, Plugin
from koord_scheduler.place.reservation.arguments import NAME as RESERVATION
from koord_scheduler.place.reservation.plugin import ReservationPlugin
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.preemption.pods import PreemptionArgs, Preemptor, preemption_args
from koord_scheduler.plan.profile import Profile, make
from koord_scheduler.share.gang.book import Gangs
from koord_scheduler.share.gang.declared import coscheduling_args
from koord_scheduler.share.quota import quotas as quota_plugin
from koord_scheduler.share.quota.quotas import Quotas
from koord_scheduler.share.quota.words import QuotaGates

_NO_GATES = QuotaGates()
COSCHEDULING, QUOTA, PREEMPTION = "Coscheduling", "ElasticQuota", "DefaultPreemption"


class Parts:
    """Engines by the name of the scheduler that pods ask for; gangs and quotas are shared by all
    profiles, with the arguments of the first one that has them. Raises ProfileError or
    ArgumentError."""

    def __init__(
        self,
        cluster: Cluster,
        profiles: tuple[Profile, ...],
        quota_gates: QuotaGates = _NO_GATES,
    ) -> None:
        self.profiles = {profile.scheduler_name: profile for profile in profiles}
        self.gangs: Gangs | None = None
        self.quotas: Quotas | None = None
        gangs, quotas = _first(profiles, COSCHEDULING), _first(profiles, QUOTA)
        if gangs is not None:
            self.gangs = Gangs(cluster.claims, coscheduling_args(gangs.args.get(COSCHEDULING, {})))
        if quotas is not None:
            self.quotas = quota_plugin.make(quotas.args.get(QUOTA, {}), quota_gates)
            self.quotas.follow(cluster)
        self.engines: dict[str, Engine] = {}
        self.preemptors: dict[str, Preemptor] = {}
        for name, profile in self.profiles.items():
            gates: list[Gate] = []
            if self.quotas is not None and QUOTA in profile.own:
                gates.append(self.quotas)
            engine = self.engines[name] = Engine(cluster, make(profile), gates)
            if PREEMPTION in profile.own:
                args = PreemptionArgs()
                if given := profile.args.get(PREEMPTION):
                    args = preemption_args(given)
                self.preemptors[name] = Preemptor(engine, None, args)

    @property
    def first(self) -> Engine:
        return next(iter(self.engines.values()))

    def plugin(self, name: str) -> Plugin | None:
        """The one of the first profile that has it."""
        for engine in self.engines.values():
            for plugin, _ in engine.plugins:
                if plugin.name == name:
                    return plugin
        return None

    def plugins(self) -> frozenset[str]:
        """Names of all that some profile has."""
        return frozenset(
            plugin.name for engine in self.engines.values() for plugin, _ in engine.plugins
        )

    def may_evict(self, pod: Pod) -> bool:
        """Reserve pods evict nobody unless the arguments say so."""
        if not pod.holds:
            return True
        plugin = self.plugin(RESERVATION)
        return isinstance(plugin, ReservationPlugin) and plugin.args.enable_preemption


def _first(profiles: tuple[Profile, ...], name: str) -> Profile | None:
    return next((profile for profile in profiles if name in profile.own), None)
