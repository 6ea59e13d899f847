"""What prediction declares of itself: options, series, families of the metrics page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from koordlet.decision.family import Family, Kind, Page
from koordlet.decision.metrics import Metric
from koordlet.decision.options import Options, Seconds, about, absolute
from koordlet.decision.part import Part
from koordlet.protocol.errors import Problem

HalfLife = Annotated[Seconds, Meta(ge=600, le=90 * 86400)]


class PredictionOptions(Options, frozen=True):
    enable: Annotated[bool, about("Off: nothing is learned, and nothing is predicted.")] = True
    model: Annotated[
        Literal["reference", "seasonal"],
        about('"seasonal" also learns each hour of the day; its peaks are never below the others.'),
    ] = "reference"
    cold_start_s: Annotated[
        Annotated[Seconds, Meta(ge=0, le=90 * 86400)],
        about("Until a pod has been watched for so long, all of its request counts as needed."),
    ] = msgspec.field(default=86400.0, name="cold_start")
    safety_margin_percent: Annotated[
        Annotated[int, Meta(ge=0, le=100)], about("Added to what the histograms say.")
    ] = 10
    cpu_half_life_s: Annotated[
        HalfLife, about("After so long a sample of CPU counts half.", restart=True)
    ] = msgspec.field(default=43200.0, name="cpu_half_life")
    memory_half_life_s: Annotated[
        HalfLife, about("After so long a sample of memory counts half.", restart=True)
    ] = msgspec.field(default=86400.0, name="memory_half_life")
    training_interval_s: Annotated[
        Annotated[Seconds, Meta(ge=10, le=240)],
        about("Between two samples of each model; each is the 90th percentile of that time."),
    ] = msgspec.field(default=60.0, name="training_interval")
    model_expiration_s: Annotated[
        Annotated[Seconds, Meta(ge=300, le=30 * 86400)],
        about("A model without a sample for so long is forgotten, with its file."),
    ] = msgspec.field(default=1800.0, name="model_expiration")
    checkpoint_path: Annotated[
        str,
        about(
            "Directory of the models; empty = prediction below state_dir. For any other one "
            "koordlet.service needs a drop-in with ReadWritePaths=, or it cannot write there.",
            restart=True,
        ),
    ] = ""
    checkpoint_interval_s: Annotated[
        Annotated[Seconds, Meta(ge=60, le=86400)], about("A model is saved this often at most.")
    ] = msgspec.field(default=600.0, name="checkpoint_interval")
    checkpoint_max_per_step: Annotated[
        Annotated[int, Meta(ge=1, le=1000)], about("Models that are saved in one minute at most.")
    ] = 12


def _check(options: PredictionOptions) -> Iterator[Problem]:
    if options.checkpoint_path:
        yield from absolute(options.checkpoint_path, "checkpoint_path")
    if options.model_expiration_s < 2 * options.training_interval_s:
        yield Problem("model_expiration", "must be at least twice training_interval")


_POD, _APP, _ITEM = ("pod_uid",), ("host_app_name",), ("prediction_item",)
_SCORED = ("model", "resource", "subject")
POD_CPU_PEAK = Metric("pod_cpu_predicted_peak", _POD, "cores", "predicted peak of a pod's CPU")
POD_MEMORY_PEAK = Metric(
    "pod_memory_predicted_peak", _POD, "bytes", "predicted peak of a pod's memory"
)
APPLICATION_CPU_PEAK = Metric(
    "host_application_cpu_predicted_peak", _APP, "cores", "predicted peak of its CPU"
)
APPLICATION_MEMORY_PEAK = Metric(
    "host_application_memory_predicted_peak", _APP, "bytes", "predicted peak of its memory"
)
NODE_CPU_PEAK = Metric(
    "node_cpu_predicted_peak", _ITEM, "cores", "predicted peak of the node or a class of pods"
)
NODE_MEMORY_PEAK = Metric(
    "node_memory_predicted_peak", _ITEM, "bytes", "predicted peak of the node or a class of pods"
)
RECLAIMABLE_CPU = Metric(
    "prod_cpu_reclaimable", (), "cores", "CPU that production requests and will not need"
)
RECLAIMABLE_MEMORY = Metric(
    "prod_memory_reclaimable", (), "bytes", "memory that production requests and will not need"
)
PROD_CPU_PEAK = Metric(
    "prod_cpu_predicted_peak", (), "cores", "what production and the system need at their peak"
)
PROD_MEMORY_PEAK = Metric(
    "prod_memory_predicted_peak", (), "bytes", "what production and the system need at their peak"
)
MID_CPU = Metric("mid_cpu_offered", (), "cores", "CPU that mid-priority pods could have")
MID_MEMORY = Metric("mid_memory_offered", (), "bytes", "memory that mid-priority pods could have")
MISS_RATIO = Metric(
    "prediction_miss_ratio",
    _SCORED,
    "ratio",
    "share of the predictions of the last day that the next hour's peak exceeded",
)
OVER_RATIO = Metric(
    "prediction_over_ratio", _SCORED, "ratio", "share of what was predicted that nobody used"
)
SERIES = tuple(value for value in tuple(globals().values()) if isinstance(value, Metric))
"""Every series that prediction may write."""

# In the reference (docs/reference/metrics.md 7).
_AMOUNT = ("resource", "unit")
NODE_PREDICTED_RECLAIMABLE = Family(
    "node_predicted_resource_reclaimable",
    Kind.GAUGE,
    "What production requests and will not need, by predictor, cores or bytes",
    ("predictor", *_AMOUNT),
    node=True,
)
NODE_PREDICTED_PEAK = Family(
    "node_predicted_resource_peak",
    Kind.GAUGE,
    "What production and the system need at their peak, by predictor, cores or bytes",
    ("predictor", *_AMOUNT),
    node=True,
)
NODE_PRIORITY_RECLAIMABLE = Family(
    "node_priority_resource_reclaimable",
    Kind.GAUGE,
    "What a priority class requests and will not need, cores or bytes; 0 where it is not predicted",
    ("priority", *_AMOUNT),
    node=True,
    page=Page.EXTERNAL,
)
NODE_RECLAIMABLE_STATUS = Family(
    "node_resource_priority_reclaimable_status",
    Kind.GAUGE,
    "0 where a priority class is predicted, 1 where it cannot be",
    ("priority",),
    node=True,
    page=Page.EXTERNAL,
)

# Of ours.
NODE_MID = Family(
    "node_predicted_mid", Kind.GAUGE, "What mid-priority pods could have, cores or bytes", _AMOUNT
)
PREDICTION_MISS_RATIO = Family(MISS_RATIO.kind, Kind.GAUGE, MISS_RATIO.help.capitalize(), _SCORED)
PREDICTION_OVER_RATIO = Family(OVER_RATIO.kind, Kind.GAUGE, OVER_RATIO.help.capitalize(), _SCORED)
PREDICTION_MODELS = Family("prediction_models", Kind.GAUGE, "Pods and others that are predicted")
PREDICTION_ROUND = Family(
    "prediction_round_seconds", Kind.GAUGE, "CPU time of the last round of training"
)
PREDICTION_AGE = Family(
    "prediction_round_age_seconds", Kind.GAUGE, "Time since the last round of training began"
)
PREDICTION_REFUSED = Family(
    "prediction_checkpoints_refused_total", Kind.COUNTER, "Damaged files of models"
)
FAMILIES = tuple(value for value in tuple(globals().values()) if isinstance(value, Family))

PREDICTION = Part(
    name="prediction",
    help="What pods and the node will need at their peak.",
    options=PredictionOptions(),
    check=_check,
    families=FAMILIES,
)
