"""``koordlet predict --back-test``: what another model would have said, from the store alone."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from koordlet.cli.main import Exit, main
from koordlet.cli.show import back_test
from koordlet.decision import metrics as k
from koordlet.decision.metrics import POD_INFO
from koordlet.tsdb import Store

STEP_S = 240
DAY = 86_400 // STEP_S
HOUR = DAY // 24
UID, OTHER = "11111111-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002"


def written(state: Path, steps: int) -> None:
    """A pod that is busy for an hour a day, another one that came for the last day, a node."""
    store = Store(str(state / "tsdb"), step_s=STEP_S, hot_window_s=3600.0, retention_s=7 * 86_400.0)

    def pair(cpu: k.Metric, memory: k.Metric, *labels: str) -> list[int]:
        kinds = cpu, memory
        return [
            store.series(each.kind, tuple(zip(each.labels, labels, strict=True))) for each in kinds
        ]

    node = pair(k.NODE_CPU_USAGE, k.NODE_MEMORY_USAGE)
    pod = pair(k.POD_CPU_USAGE, k.POD_MEMORY_USAGE, UID)
    other = pair(k.POD_CPU_USAGE, k.POD_MEMORY_USAGE, OTHER)
    names = {"pod_uid": UID, "namespace": "shop", "name": "web-0", "qos": "LS"}
    told = store.series(
        POD_INFO.kind, tuple((each, names.get(each, "")) for each in POD_INFO.labels)
    )
    end_s = int(time.time()) // STEP_S * STEP_S
    for step in range(steps):
        time_ms = 1000 * (end_s - (steps - 1 - step) * STEP_S)
        cores = 3.0 if step % DAY < HOUR else 0.5
        values = dict(zip((*node, *pod), (cores + 1, 8e9, cores, 1e9), strict=True))
        values[told] = 1.0
        if steps - step <= DAY:
            values |= dict(zip(other, (1.0, 1e9), strict=True))
        store.append(time_ms, list(values), list(values.values()))
        if step % HOUR == 0:
            store.maintain(time_ms)
    store.close()


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("state")
    written(found, 4 * DAY)
    (found / "koordlet.toml").write_text('[prediction]\ntraining_interval = "4m"\n')
    return found


def printed(capsys: pytest.CaptureFixture[str], state: Path, *more: str) -> str:
    config = str(state / "koordlet.toml")
    command = ["predict", "--back-test", "--state-dir", str(state), "--config", config]
    assert main([*command, *more]) == Exit.OK
    return capsys.readouterr().out


def asked(capsys: pytest.CaptureFixture[str], state: Path, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed(capsys, state, "-o", "json", *more))
    return found


def test_every_model_is_played_over_the_history(
    capsys: pytest.CaptureFixture[str], state: Path
) -> None:
    """The reference has forgotten yesterday's hour when it comes again; the season has not."""
    found = asked(capsys, state)
    assert (found["workloads"], found["left_out"]) == (2, 0)
    assert 4 * 86_400 - 2 * STEP_S <= found["end"] - found["start"] <= 4 * 86_400
    scores = {(each["model"], each["resource"], each["subject"]): each for each in found["scores"]}
    assert set(scores) == {
        (model, resource, whom)
        for model in ("reference", "seasonal")
        for resource in ("cpu", "memory")
        for whom in ("workloads", "node")
    }
    reference, seasonal = (scores[each, "cpu", "node"] for each in ("reference", "seasonal"))
    assert reference["miss_ratio"] > 0.02
    assert seasonal["miss_ratio"] < reference["miss_ratio"] / 2
    assert 0 < seasonal["over_ratio"] < 1
    assert scores["seasonal", "memory", "node"]["miss_ratio"] == 0.0


@pytest.mark.parametrize("name", [UID, "shop/web-0", "node"])
def test_of_one_alone(capsys: pytest.CaptureFixture[str], state: Path, name: str) -> None:
    found = asked(capsys, state, name, "--window", "24h")
    assert found["workloads"] == (name != "node")
    assert {each["subject"] for each in found["scores"]} == {
        "node" if name == "node" else "workloads"
    }
    assert 86_400 - 2 * STEP_S <= found["end"] - found["start"] <= 86_400


def test_beyond_the_bound_the_largest_are_played(
    capsys: pytest.CaptureFixture[str], state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(back_test, "MOST_WORKLOADS", 1)
    found = asked(capsys, state, "--window", "24h")
    assert (found["workloads"], found["left_out"]) == (1, 1)
    (over,) = (
        each["over_ratio"]
        for each in found["scores"]
        if (each["model"], each["resource"], each["subject"]) == ("reference", "cpu", "workloads")
    )
    assert over == pytest.approx((1138 - 1000) / 1138, abs=1e-3)  # the one that uses 1 core now
    text = printed(capsys, state, "--window", "1h")
    assert "Of 2 workloads the 1 that use the most CPU" in text
    assert "A season needs two days of history" in text
    assert "Nothing was tested" in text


def test_what_the_store_does_not_know_is_refused(
    capsys: pytest.CaptureFixture[str], state: Path, tmp_path: Path
) -> None:
    command = ["predict", "--back-test", "--state-dir"]
    assert main([*command, str(state), "shop/web-9"]) == Exit.BAD
    assert (
        "'shop/web-9' is neither \"node\" nor a pod or application of the last hour"
        in capsys.readouterr().err
    )
    assert main([*command, str(tmp_path)]) == Exit.BAD
    assert "--state-dir names the state directory" in capsys.readouterr().err
    assert main(["predict", "--state-dir", str(state)]) == Exit.USAGE
    assert "--state-dir goes with --back-test" in capsys.readouterr().err
