"""An installation of Koordinator, written from docs/reference: names, selectors, arguments."""

from __future__ import annotations

import json
from typing import Any

import yaml

from koord_scheduler.cli.switching.names import NAMESPACE

Tree = dict[str, Any]
APPS = ("koord-manager", "koord-scheduler", "koord-descheduler")
HOOKS = "admissionregistration.k8s.io/v1"
SECRET = {
    "ca-key.pem": "Y2FrZXk=",
    "ca-cert.pem": "Y2E=",
    "key.pem": "a2V5",
    "cert.pem": "Y2VydA==",
}
_ARGS = {
    "koord-manager": [
        "--enable-leader-election",
        "--leader-election-namespace=koordinator-system",
        "--config-namespace=koordinator-system",
        "--feature-gates=MultiQuotaTree=true,WebhookFramework=true",
        "--v=4",
    ],
    "koord-scheduler": ["--port=10251", "--v=4", "--config=/config/koord-scheduler.config"],
    "koord-descheduler": ["--v=4", "--config=/config/koord-descheduler.config"],
    "koordlet": ["-addr=:9316", "-feature-gates=BECPUEvict=true", "--v=4"],
}
_CONFIG: dict[str, Tree] = {
    "koord-scheduler": {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceName": "koord-scheduler",
            "resourceNamespace": NAMESPACE,
        },
        "profiles": [{"schedulerName": "koord-scheduler"}],
    },
    "koord-descheduler": {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "profiles": [{"name": "koord-descheduler"}],
    },
}


def named(kind: str, name: str, **rest: Any) -> Tree:
    core = {"Deployment": "apps/v1", "DaemonSet": "apps/v1"}.get(kind, "v1")
    meta: Tree = {"name": name, "namespace": NAMESPACE, **rest.pop("meta", {})}
    return {"apiVersion": core, "kind": kind, "metadata": meta, **rest}


def workload(app: str, *, helm: bool = True, name: str = "", replicas: int = 2) -> Tree:
    """``name``: kustomize gives the agent and its account another one."""
    labels = {"koord-app": app}
    container: Tree = {"name": app, "image": f"reference/{app}:1.8", "args": _ARGS[app]}
    account = name if app == "koordlet" and name else app
    pod: Tree = {"serviceAccountName": account, "containers": [container]}
    if app in _CONFIG:
        item = {"key": f"{app}-config", "path": f"{app}.config"}
        source = {"name": f"{app}-config", "items": [item]}
        pod["volumes"] = [{"name": "config", "configMap": source}]
        container["volumeMounts"] = [{"name": "config", "mountPath": "/config"}]
    spec: Tree = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    meta: Tree = {"labels": labels}
    if helm:
        meta["labels"] = {**labels, "app.kubernetes.io/managed-by": "Helm"}
        meta["annotations"] = {"meta.helm.sh/release-name": "koordinator"}
    if app == "koordlet":
        pod["hostNetwork"] = True
        pod["tolerations"] = [{"operator": "Exists"}]
        limit = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%", "maxSurge": 0}}
        return named("DaemonSet", name or app, meta=meta, spec={**spec, "updateStrategy": limit})
    return named("Deployment", app, meta=meta, spec={**spec, "replicas": replicas})


def configuration(app: str, **changes: Any) -> Tree:
    text = yaml.safe_dump({**_CONFIG[app], **changes})
    return named("ConfigMap", f"{app}-config", data={f"{app}-config": text})


def webhooks(kind: str, path: str, policy: str = "Ignore") -> Tree:
    service = {"name": "koordinator-webhook-service", "namespace": NAMESPACE, "path": path}
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
    }
    hook = {
        "name": "vpod.koordinator.sh",
        "clientConfig": {"caBundle": "Y2E=", "service": service},
        "failurePolicy": policy,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "control-plane", "operator": "DoesNotExist"},
                # Nobody answers in a test, and no request may leave for a name that is not there.
                {"key": "asks-webhooks", "operator": "Exists"},
            ]
        },
        "rules": [rule],
    }
    name = f"koordinator-{kind.lower()}-webhook-configuration"
    meta = {"name": name, "annotations": {"template": json.dumps([hook])}}
    return {
        "apiVersion": HOOKS,
        "kind": f"{kind}WebhookConfiguration",
        "metadata": meta,
        "webhooks": [hook],
    }


def installation(*, helm: bool = True, agent: str = "", apps: tuple[str, ...] = APPS) -> list[Tree]:
    """Everything but definitions. ``agent``: name of its DaemonSet."""
    ports = [{"port": 443, "targetPort": 9876}]
    service = {"selector": {"koord-app": "koord-manager"}, "ports": ports}
    strategy = json.dumps({"enable": True})
    return [
        *(named("ServiceAccount", app) for app in (*apps, agent or "koordlet")),
        *(configuration(app) for app in apps if app in _CONFIG),
        named("ConfigMap", "slo-controller-config", data={"colocation-config": strategy}),
        named("Service", "koordinator-webhook-service", spec=service),
        named("Secret", "koordinator-webhook-certs", type="Opaque", data=SECRET),
        webhooks("Mutating", "/mutate-pod"),
        webhooks("Validating", "/validate-pod"),
        *(workload(app, helm=helm) for app in apps),
        workload("koordlet", helm=helm, name=agent),
    ]
