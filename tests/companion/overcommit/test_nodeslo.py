"""The spec of a NodeSLO (docs/reference/central.md 1.8)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord_scheduler.overcommit.configuration import Configuration, load
from koord_scheduler.overcommit.nodeslo import slo_spec
from koordlet.protocol.decode import decode
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.protocol.slo_defaults import effective
from tests.companion.overcommit.build import loaded, node

DEFAULTS: dict[str, Any] = {
    "resourceUsedThresholdWithBE": {
        "enable": False,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
        "cpuEvictPolicy": "evictByRealLimit",
    },
    "resourceQOSStrategy": {},
    "cpuBurstStrategy": {
        "policy": "none",
        "cpuBurstPercent": 1000,
        "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    },
    "systemStrategy": {"totalNetworkBandwidth": "0"},
}


def spec(configuration: Configuration, **of: Any) -> dict[str, Any]:
    found, problems = slo_spec(configuration, node(**of), None)
    assert problems == ()
    assert found is not None
    return found


def keys(**values: Any) -> Configuration:
    names = {
        "threshold": "resource-threshold-config",
        "qos": "resource-qos-config",
        "burst": "cpu-burst-config",
        "system": "system-config",
        "applications": "host-application-config",
    }
    return loaded({names[key]: json.dumps(value) for key, value in values.items()})


def test_defaults() -> None:
    assert spec(load(None, None)) == spec(load({}, None)) == DEFAULTS


def test_each_section_is_cluster_over_defaults_and_entry_over_cluster() -> None:
    selector = {"matchLabels": {"pool": "xl"}}
    configuration = keys(
        threshold={
            "clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 60},
            "nodeStrategies": [{"nodeSelector": selector, "memoryEvictThresholdPercent": 80}],
        },
        qos={
            "clusterStrategy": {"lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 1}}},
            "nodeStrategies": [
                {"nodeSelector": selector, "lsClass": {"cpuQOS": {"groupIdentity": 0}}}
            ],
        },
        burst={"nodeStrategies": [{"nodeSelector": selector, "policy": "auto"}]},
        system={
            "clusterStrategy": {"schedFeatures": {"A": True}, "totalNetworkBandwidth": "1G"},
            "nodeStrategies": [{"nodeSelector": selector, "schedFeatures": {"B": False}}],
        },
    )
    of_cluster = spec(configuration)
    assert of_cluster["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 60
    assert of_cluster["resourceUsedThresholdWithBE"]["memoryEvictThresholdPercent"] == 70
    assert of_cluster["cpuBurstStrategy"]["policy"] == "none"
    found = spec(configuration, labels={"pool": "xl"})
    assert found["resourceUsedThresholdWithBE"] == {
        **DEFAULTS["resourceUsedThresholdWithBE"],
        "enable": True,
        "cpuSuppressThresholdPercent": 60,
        "memoryEvictThresholdPercent": 80,
    }
    assert found["resourceQOSStrategy"] == {
        "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 0}}
    }
    assert found["cpuBurstStrategy"]["policy"] == "auto"
    assert found["systemStrategy"] == {
        "schedFeatures": {"A": True, "B": False},
        "totalNetworkBandwidth": "1G",
    }


def test_an_entry_of_host_applications_replaces_the_list() -> None:
    configuration = keys(
        applications={
            "applications": [{"name": "nginx", "priority": "koord-prod", "qos": "LS"}],
            "nodeConfigs": [
                {
                    "nodeSelector": {"matchLabels": {"pool": "yarn"}},
                    "applications": [
                        {
                            "name": "nm",
                            "priority": "koord-batch",
                            "qos": "BE",
                            "cgroupPath": {"base": "CgroupRoot", "relativePath": "yarn/"},
                        }
                    ],
                },
                {"nodeSelector": {"matchLabels": {"pool": "none"}}},
            ],
        }
    )
    assert [each["name"] for each in spec(configuration)["hostApplications"]] == ["nginx"]
    of_yarn = spec(configuration, labels={"pool": "yarn"})
    assert [each["name"] for each in of_yarn["hostApplications"]] == ["nm"]
    assert "hostApplications" not in spec(configuration, labels={"pool": "none"})
    assert slo_spec(configuration, node(labels={"pool": "yarn"}), of_yarn) == (None, ())


@pytest.mark.parametrize(("text", "bandwidth"), [("1000M", "1G"), ("5", "5"), ("", "2G")])
def test_a_node_has_its_own_bandwidth(text: str, bandwidth: str) -> None:
    configuration = keys(system={"clusterStrategy": {"totalNetworkBandwidth": "2G"}})
    found = spec(configuration, annotations={"node.koordinator.sh/network-bandwidth": text})
    assert found["systemStrategy"]["totalNetworkBandwidth"] == bandwidth


@pytest.mark.parametrize("text", ["fast", "-1", "1 G"])
def test_a_bandwidth_that_cannot_be_read_costs_itself_alone(text: str) -> None:
    configuration = keys(system={"clusterStrategy": {"minFreeKbytesFactor": 100}})
    of = node(annotations={"node.koordinator.sh/network-bandwidth": text})
    found, problems = slo_spec(configuration, of, None)
    assert found is not None
    assert found["systemStrategy"] == {"minFreeKbytesFactor": 100, "totalNetworkBandwidth": "0"}
    assert "network-bandwidth" in problems[0]


def test_what_is_there_already_is_not_written() -> None:
    configuration = keys(
        qos={"clusterStrategy": {"beClass": {"networkQOS": {"enable": True, "egressLimit": 30}}}}
    )
    wanted = spec(configuration)
    assert slo_spec(configuration, node(), wanted) == (None, ())
    with_defaults = json.loads(json.dumps(wanted))
    with_defaults["resourceQOSStrategy"]["beClass"]["networkQOS"].update(
        {"ingressRequest": 0, "ingressLimit": 100, "egressRequest": 0}
    )
    assert slo_spec(configuration, node(), with_defaults) == (None, ())
    other = {**wanted, "cpuBurstStrategy": {"policy": "auto"}}
    assert slo_spec(configuration, node(), other) == (wanted, ())
    extended = {**wanted, "extensions": {"Object": {"mine": 1}}}
    assert slo_spec(configuration, node(), extended) == (None, ())
    assert slo_spec(configuration, node(), {"extensions": {"a": 1}})[0] == {
        **wanted,
        "extensions": {"a": 1},
    }


def test_koordlet_reads_what_is_written() -> None:
    decoded = decode(NodeSLOSpec, spec(load({}, None)), strict=True)
    assert effective(decoded).cpu_burst_strategy == decoded.cpu_burst_strategy
