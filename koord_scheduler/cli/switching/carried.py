"""What ours take over of the arguments and files of theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from koord_scheduler.admission.words import GATE_FIELDS
from koord_scheduler.cli.switching.look import Look, service_of
from koord_scheduler.cli.switching.names import (
    AGENT,
    DESCHEDULER,
    LEASES,
    MANAGER,
    NAMESPACE,
    SCHEDULER,
    SERVICE,
)
from koord_scheduler.cli.switching.recording import remembered
from koord_scheduler.kube.trees import Ref, Tree

_SAME = (
    "--config-namespace",
    "--slo-config-name",
    "--sync-gpu-shared",
)
"""Arguments of the manager that mean the same here."""
_SILENT = re.compile(
    "--v|--logtostderr|--metrics-addr|--health-probe-addr|--enable-leader-election|--sync-period"
    "|--leader-election-namespace|--leader-elect(-resource-(name|namespace|lock))?"
    "|--(secure-)?port|--authentication-skip-lookup|--config|--feature-gates|--namespace|--addr"
    "|--enable-network-topology-manager|--pprof-addr|--enable-pprof|--cgroup-root-dir"
    "|--runtime-hooks-(host-endpoint|addr|network)"
)
"""Those that have no counterpart or need none."""
_MOUNT = "/etc/koord-switch"
NO_WEBHOOKS = "--controllers=*"
"""Argument of a manager that admits nothing, as theirs did before."""
_FALSE = ("false", "False", "FALSE", "f", "F", "0")
_OF_KUBE_SCHEDULER = ("kube-system", "kube-scheduler")
"""Namespace and name of the lease where neither file nor flags of a scheduler name them."""
_OPTION = {SCHEDULER: "--config", DESCHEDULER: "--descheduler-config"}


class File(NamedTuple):
    """A key of a ConfigMap that theirs has as a file."""

    map: str
    key: str

    @property
    def ref(self) -> Ref:
        return Ref("v1", "ConfigMap", self.map, NAMESPACE)


class Carried(NamedTuple):
    """``by_hand``: arguments of theirs that nobody here understands. ``pod``: where its pods may
    run, and with which secrets their images are pulled."""

    args: tuple[str, ...] = ()
    file: File | None = None
    by_hand: tuple[str, ...] = ()
    pod: Mapping[str, Any] = {}


def container(workload: Tree) -> Tree:
    found: Tree = workload["spec"]["template"]["spec"]["containers"][0]
    return found


def arguments(workload: Tree) -> dict[str, str]:
    """Flags of the first container with their values, empty for those without. Go takes one dash
    for two."""
    made = container(workload)
    found = {}
    words = [str(each) for each in (*(made.get("command") or ()), *(made.get("args") or ()))]
    for word, following in zip(words, (*words[1:], "-"), strict=True):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            found[f"--{name.lstrip('-')}"] = (
                value if equals or following.startswith("-") else following
            )
    return found


def file_of(workload: Tree) -> File | None:
    """The ConfigMap that ``--config`` names; None where it is something else."""
    path = arguments(workload).get("--config", "")
    directory, _, name = path.rpartition("/")
    mounts = container(workload).get("volumeMounts") or []
    mount = next((e for e in mounts if e["mountPath"].rstrip("/") == directory), None)
    if not path or mount is None:
        return None
    volumes = workload["spec"]["template"]["spec"].get("volumes") or []
    volume: Tree = next((e for e in volumes if e["name"] == mount["name"]), {})
    source = volume.get("configMap") or {}
    if not source.get("name"):
        return None
    items = source.get("items") or []
    key = next((e["key"] for e in items if e["path"] == name), None if items else name)
    return File(source["name"], key) if key else None


def carried(role: str, seen: Look) -> Carried:
    """Of the workload of theirs as it was before a switch; nothing where there is none."""
    theirs = remembered(seen, role)
    if not theirs:
        return Carried()
    found = arguments(theirs)
    by_hand = [
        f"{name}={value}" if value else name
        for name, value in found.items()
        if not _SILENT.fullmatch(name) and not (role == MANAGER and name in _SAME)
    ]
    pod = _pod(theirs["spec"]["template"]["spec"])
    if role == AGENT:
        gates = found.get("--feature-gates", "")
        by_hand += [f"--feature-gates={gates}"] if gates else []
        return Carried(by_hand=tuple(by_hand), pod=pod)
    args: list[str] = []
    file = None
    if role == MANAGER:
        args += [f"{k}={v}" if v else k for k, v in found.items() if k in _SAME]
        given = [e.strip() for e in found.get("--feature-gates", "").split(",") if e.strip()]
        known = [each for each in given if each.partition("=")[0] in GATE_FIELDS]
        by_hand += [f"--feature-gates={each}" for each in given if each not in known]
        if known:
            args.append(f"--feature-gates={','.join(known)}")
        if "WebhookFramework=false" in given:
            args.append(NO_WEBHOOKS)
            by_hand.remove("--feature-gates=WebhookFramework=false")
        if service_of(seen) != SERVICE:
            args.append(f"--webhook-service={service_of(seen)}")
        if lenient(seen):
            args.append("--webhook-failure-policy=Ignore")
    else:
        if found.get("--feature-gates"):
            by_hand.append(f"--feature-gates={found['--feature-gates']}")
        file = file_of(theirs)
        if file is not None:
            args.append(f"{_OPTION[role]}={_MOUNT}/{file.key}")
        elif "--config" in found:
            by_hand.append(f"--config={found['--config']}")
    return Carried(tuple(args), file, tuple(by_hand), pod)


def with_carried(workload: Tree, found: Carried, image: str) -> Tree:
    """Our workload with them."""
    spec: Tree = workload["spec"]["template"]["spec"]
    first: Tree = {**spec["containers"][0]}
    if image:
        first["image"] = image
    first["args"] = [*(first.get("args") or ()), *found.args]
    pod = {**spec, "containers": [first, *spec["containers"][1:]], **_merged(spec, found.pod)}
    if found.file is not None:
        mount = {"name": "switched", "mountPath": _MOUNT, "readOnly": True}
        first["volumeMounts"] = [*(first.get("volumeMounts") or ()), mount]
        volume = {"name": "switched", "configMap": {"name": found.file.map}}
        pod["volumes"] = [*(spec.get("volumes") or ()), volume]
    template = {**workload["spec"]["template"], "spec": pod}
    return {**workload, "spec": {**workload["spec"], "template": template}}


def _pod(spec: Tree) -> Tree:
    found = {key: spec[key] for key in ("nodeSelector", "imagePullSecrets") if spec.get(key)}
    if spec.get("tolerations"):
        found["tolerations"] = spec["tolerations"]
    affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    return {**found, **({"nodeAffinity": affinity} if affinity else {})}


def _merged(spec: Tree, theirs: Mapping[str, Any]) -> Tree:
    """Theirs laid over the pod of ours: every condition of both holds for nodes."""
    found: Tree = {}
    if "nodeSelector" in theirs:
        found["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **theirs["nodeSelector"]}
    if "imagePullSecrets" in theirs:
        found["imagePullSecrets"] = theirs["imagePullSecrets"]
    if "tolerations" in theirs:
        known = spec.get("tolerations") or []
        found["tolerations"] = [*known, *(e for e in theirs["tolerations"] if e not in known)]
    if "nodeAffinity" in theirs:
        affinity = spec.get("affinity") or {}
        node = {**theirs["nodeAffinity"], **_required(affinity.get("nodeAffinity"), theirs)}
        found["affinity"] = {**affinity, "nodeAffinity": node}
    return found


def _required(ours: Tree | None, theirs: Mapping[str, Any]) -> Tree:
    """Terms are alternatives: each of theirs gets the expressions of our only one."""
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    own = ((ours or {}).get(name) or {}).get("nodeSelectorTerms") or []
    given = (theirs["nodeAffinity"].get(name) or {}).get("nodeSelectorTerms") or [{}]
    if not own:
        return {}
    more = own[0]["matchExpressions"]
    terms = [{**e, "matchExpressions": [*(e.get("matchExpressions") or ()), *more]} for e in given]
    return {name: {"nodeSelectorTerms": terms}}


def lenient(seen: Look) -> bool:
    """Whether pods go through while no webhook of theirs answers."""
    policies = [
        hook.get("failurePolicy", "Fail")
        for each in seen.webhooks
        for hook in each.get("webhooks") or ()
        if _path(hook) == "/mutate-pod"
    ]
    return bool(policies) and all(each == "Ignore" for each in policies)


def lease_of(role: str, workload: Tree, configuration: Mapping[str, Any]) -> tuple[str, str] | None:
    """Namespace and name of the lease that theirs takes; None where it takes none. Flags go before
    the file."""
    found = arguments(workload)
    if role == MANAGER:
        if found.get("--enable-leader-election") in _FALSE:
            return None
        return found.get("--leader-election-namespace") or NAMESPACE, LEASES[role]
    election = configuration.get("leaderElection")
    given = election if isinstance(election, Mapping) else {}
    elects = found.get("--leader-elect", "false" if given.get("leaderElect") is False else "")
    if elects in _FALSE:
        return None
    namespace, name = _OF_KUBE_SCHEDULER if role == SCHEDULER else (NAMESPACE, LEASES[role])
    flag = "--leader-elect-resource-"
    return (
        found.get(f"{flag}namespace") or str(given.get("resourceNamespace") or namespace),
        found.get(f"{flag}name") or str(given.get("resourceName") or name),
    )


def _path(hook: Tree) -> str:
    client = hook.get("clientConfig") or {}
    return str((client.get("service") or {}).get("path", ""))
