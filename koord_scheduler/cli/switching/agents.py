"""The change of agents, node by node: never two on one node, and never many nodes without one.

Nodes where theirs runs get a label, without which theirs, from then on, runs nowhere. Ours keeps
away from nodes with it and, by anti-affinity, from nodes where a pod of theirs still is. So taking
the label away moves one node, giving it back moves it back, and new nodes get ours.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping

from koord_scheduler.cli.switching.carried import Carried, with_carried
from koord_scheduler.cli.switching.forward import ROLLOUT_S, beside
from koord_scheduler.cli.switching.look import Look, place, workload
from koord_scheduler.cli.switching.names import AGENT, APPLIED, OURS, PARKED, PARKED_VALUE
from koord_scheduler.cli.switching.objects import Ours, applied, is_applied
from koord_scheduler.cli.switching.recording import remember, remembered, workload_ref
from koord_scheduler.cli.switching.states import is_ready, on_nodes, trouble_of
from koord_scheduler.cli.switching.steps import Step
from koord_scheduler.kube.trees import Ref, Tree, Write

NODE_S = 300.0
_SHARE = 5
"""At most one in so many nodes changes at once; the first one alone."""
_CONFIG, _FILE = "koordlet-config", "koordlet.toml"
_RESTORES = "switch.koordinator.sh/restores"


def forward(ours: Ours, seen: Look, found: Carried, image: str) -> Iterable[Step]:
    theirs = seen.theirs[AGENT]
    ref = workload_ref(theirs)
    made = applied(with_carried(ours.workloads[AGENT], found, image))
    yield remember(AGENT)
    yield from beside(AGENT, ours, seen)
    yield Step(
        AGENT,
        "patch",
        "nodes where theirs runs",
        f"label {PARKED}={PARKED_VALUE}: their agent stays until its node changes",
        lambda look: "" if _is_parked(look) else _unlabelled(look),
        lambda look: () if _is_parked(look) else _label(look, _their_nodes(look) - look.parked),
    )
    yield Step(
        AGENT,
        "patch",
        str(ref),
        "runs on labelled nodes alone; no pod restarts (updateStrategy OnDelete)",
        lambda look: (
            _seen_by_controller(look.theirs.get(AGENT))
            if _is_parked(look)
            else "runs on every node"
        ),
        lambda look: () if _is_parked(look) else (Write("patch", ref, _PARKING),),
    )
    yield Step(
        AGENT,
        "create",
        f"DaemonSet {OURS[AGENT]}",
        "runs on nodes without the label",
        lambda look: (
            _seen_by_controller(look.ours.get(AGENT))
            if is_applied(made, look.ours.get(AGENT))
            else "is not there yet"
        ),
        lambda look: () if is_applied(made, look.ours.get(AGENT)) else (made,),
    )
    yield Step(
        AGENT,
        "move",
        f"{len(_their_nodes(seen) | seen.parked)} nodes",
        "the label goes, theirs ends, ours begins: first one node, then a fifth at a time",
        _left_forward,
        _next_forward,
        limit_s=NODE_S,
    )


def back(seen: Look) -> Iterable[Step]:
    theirs = remembered(seen, AGENT)
    ref = workload_ref(theirs)
    yield from _restoring(seen)
    yield Step(
        AGENT,
        "patch",
        str(ref),
        "as it was; waits on each node until ours has gone (anti-affinity)",
        lambda look: "" if _is_restored(look, theirs) else "is not as it was",
        lambda look: (_restoration(look, ref, theirs),),
    )
    yield Step(
        AGENT,
        "move",
        f"{len(on_nodes(seen.our_pods(AGENT)))} nodes",
        "the label comes, ours ends, theirs begins: first one node, then a fifth at a time",
        _left_back,
        _next_back,
        limit_s=NODE_S,
    )
    yield Step(
        AGENT,
        "delete",
        f"DaemonSet {OURS[AGENT]}",
        "theirs runs on each node",
        lambda look: (
            "is still there"
            if AGENT in look.ours
            else f"{len(look.our_pods(AGENT))} pods still end" * bool(look.our_pods(AGENT))
        ),
        lambda look: (Write("delete", workload(AGENT, OURS[AGENT])),) if AGENT in look.ours else (),
    )
    yield Step(
        AGENT,
        "patch",
        "nodes",
        f"label {PARKED} goes",
        lambda look: f"{len(look.parked)} nodes have it" if look.parked else "",
        lambda look: _label(look, look.parked, None),
    )


_PARKING = {
    "spec": {
        "updateStrategy": {"type": "OnDelete", "rollingUpdate": None},
        "template": {"spec": {"nodeSelector": {PARKED: PARKED_VALUE}}},
    }
}


def _is_parked(look: Look) -> bool:
    theirs = look.theirs.get(AGENT)
    spec = theirs["spec"]["template"]["spec"] if theirs else {}
    return theirs is None or (spec.get("nodeSelector") or {}).get(PARKED) == PARKED_VALUE


def _their_nodes(look: Look) -> frozenset[str]:
    return frozenset(on_nodes(look.their_pods(AGENT)))


def _unlabelled(look: Look) -> str:
    left = _their_nodes(look) - look.parked
    return f"{len(left)} nodes have no label yet" if left else ""


def _label(look: Look, nodes: Iterable[str], value: str | None = PARKED_VALUE) -> tuple[Write, ...]:
    patch = {"metadata": {"labels": {PARKED: value}}}
    return tuple(Write("patch", Ref("v1", "Node", name), patch) for name in sorted(nodes))


def _seen_by_controller(there: Tree | None) -> str:
    status = (there or {}).get("status") or {}
    generation = (there or {"metadata": {}})["metadata"].get("generation", 1)
    seen = status.get("observedGeneration", 0) >= generation
    return "" if seen else "its controller has not seen it yet"


def _moving(look: Look, *, forward: bool) -> list[str]:
    """Nodes on which the one has begun to go and the other is not ready yet."""
    ours, theirs = on_nodes(look.our_pods(AGENT)), on_nodes(look.their_pods(AGENT))
    if forward:
        waiting = (theirs.keys() | _pinned(look.our_pods(AGENT))) - look.parked
        return sorted(e for e in waiting if e in theirs or e not in ours or not is_ready(ours[e]))
    waiting = ours.keys() | _pinned(look.their_pods(AGENT))
    return sorted(
        e for e in waiting & look.parked if e in ours or e not in theirs or not is_ready(theirs[e])
    )


def _pinned(pods: Iterable[Tree]) -> set[str]:
    """Nodes of pods of a DaemonSet, those that wait for their node to get free included."""
    found = set()
    for pod in pods:
        affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        for term in required.get("nodeSelectorTerms") or ():
            for field in term.get("matchFields") or ():
                if field.get("key") == "metadata.name":
                    found |= set(field.get("values") or ())
        if pod["spec"].get("nodeName"):
            found.add(pod["spec"]["nodeName"])
    return found


def _left_forward(look: Look) -> str:
    moving = _moving(look, forward=True)
    if not moving and not look.parked:
        return ""
    return _words(moving, len(look.parked), look.our_pods(AGENT))


def _next_forward(look: Look) -> tuple[Write, ...]:
    if _moving(look, forward=True):
        return ()
    done = len(on_nodes(look.our_pods(AGENT)))
    batch = _batch(done, len(look.parked))
    ready = {name for name, pod in on_nodes(look.their_pods(AGENT)).items() if is_ready(pod)}
    # Nodes that are away come last, so that they hold up nobody else.
    return _label(look, sorted(look.parked, key=lambda e: (e not in ready, e))[:batch], None)


def _left_back(look: Look) -> str:
    moving = _moving(look, forward=False)
    left = on_nodes(look.our_pods(AGENT)).keys() - look.parked
    if not moving and not left:
        return ""
    return _words(moving, len(left), look.their_pods(AGENT))


def _next_back(look: Look) -> tuple[Write, ...]:
    if _moving(look, forward=False):
        return ()
    left = sorted(on_nodes(look.our_pods(AGENT)).keys() - look.parked)
    done = len(on_nodes(look.their_pods(AGENT)))
    return _label(look, left[: _batch(done, len(left))])


def _batch(done: int, left: int) -> int:
    return 1 if not done else max(1, (done + left) // _SHARE)


def _words(moving: list[str], left: int, pods: Iterable[Tree]) -> str:
    words = f"{left} nodes left"
    if moving:
        trouble = next((t for t in map(trouble_of, pods) if t), "")
        words += f", {', '.join(moving[:3])} on the way{f' ({trouble})' if trouble else ''}"
    return words


def _is_restored(look: Look, theirs: Mapping[str, Tree]) -> bool:
    there = look.theirs.get(AGENT)
    if there is None:
        return False
    was, now = theirs["spec"], there["spec"]
    return bool(
        now.get("updateStrategy") == was.get("updateStrategy")
        and now["template"]["spec"].get("nodeSelector")
        == was["template"]["spec"].get("nodeSelector")
    )


def _restoration(look: Look, ref: Ref, theirs: Tree) -> Write:
    if look.theirs.get(AGENT) is None:
        return Write("create", ref, theirs)
    selector = dict(theirs["spec"]["template"]["spec"].get("nodeSelector") or {})
    strategy = theirs["spec"].get("updateStrategy") or {"type": "RollingUpdate"}
    patch = {
        "updateStrategy": strategy,
        "template": {"spec": {"nodeSelector": {PARKED: None, **selector} if selector else None}},
    }
    return Write("patch", ref, {"spec": patch})


def _restoring(seen: Look) -> Iterable[Step]:
    """Ours puts back what it has set on the node when it ends there: theirs begins clean."""
    config, ref = place("ConfigMap", _CONFIG), workload(AGENT, OURS[AGENT])

    def text_of(look: Look) -> str:
        return str(((look.found.get(config) or {}).get("data") or {}).get(_FILE, ""))

    def annotated(look: Look) -> bool:
        template = look.ours[AGENT]["spec"]["template"]["metadata"]
        return (template.get("annotations") or {}).get(_RESTORES) == "on-stop"

    def missing(look: Look) -> str:
        there = look.ours.get(AGENT)
        if there is None or not look.found.get(config) or _is_leaving(look):
            return ""
        if restores(text_of(look)) and annotated(look):
            return _rolled(there)
        return "keeps values when it ends"

    def writes(look: Look) -> tuple[Write, ...]:
        if look.ours.get(AGENT) is None:
            return ()
        # Who goes forward again applies both anew.
        changed = {"metadata": {"annotations": {APPLIED: "changed by --back"}}}
        patch = {"metadata": {"annotations": {_RESTORES: "on-stop"}}}
        made = []
        if not restores(text_of(look)):
            data = {_FILE: restoring(text_of(look))}
            made.append(Write("patch", config, {**changed, "data": data}))
        if not annotated(look):
            made.append(Write("patch", ref, {**changed, "spec": {"template": patch}}))
        return tuple(made)

    yield Step(
        AGENT,
        "patch",
        f"{config}, DaemonSet {OURS[AGENT]}",
        'daemon.on_stop = "restore": each agent of ours puts values back when it ends',
        missing,
        writes,
        (config,),
        ROLLOUT_S,
    )


def _is_leaving(look: Look) -> bool:
    """Nodes have begun to go back."""
    return bool(look.parked) and not _is_parked(look)


def restores(text: str) -> bool:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    daemon = tree.get("daemon")
    return isinstance(daemon, dict) and daemon.get("on_stop") == "restore"


def restoring(text: str) -> str:
    """The configuration with ``daemon.on_stop = "restore"``."""
    key = 'on_stop = "restore"'
    lines = [e for e in text.splitlines() if not e.replace(" ", "").startswith("on_stop=")]
    if "[daemon]" in (each.strip() for each in lines):
        at = next(i for i, each in enumerate(lines) if each.strip() == "[daemon]")
        lines[at + 1 : at + 1] = [key]
    else:
        lines += ["", "[daemon]", key]
    return "\n".join(lines) + "\n"


def _rolled(there: Tree) -> str:
    status = there.get("status") or {}
    wanted = status.get("desiredNumberScheduled", 0)
    new, ready = status.get("updatedNumberScheduled", 0), status.get("numberReady", 0)
    if _seen_by_controller(there) == "" and new >= wanted and ready >= wanted:
        return ""
    return f"{min(new, ready)} of {wanted} agents have read it"
