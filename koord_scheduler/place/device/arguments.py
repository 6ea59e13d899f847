"""Arguments of DeviceShare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from koord_scheduler.model.cluster.arguments import Args, read_args
from koord_scheduler.place.device.free import NAME
from koord_scheduler.place.device.request import FPGA_SHARE, NPU_CORE
from koord_scheduler.place.fit import ResourceWeight, check_weights, evenly
from koordlet.protocol.resources import GPU_MEMORY, GPU_MEMORY_RATIO, RDMA_SHARE

_NAMES = (GPU_MEMORY_RATIO, GPU_MEMORY, RDMA_SHARE, FPGA_SHARE)


class Scoring(msgspec.Struct, frozen=True):
    type: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = evenly(*_NAMES)


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


def device_args(args: Mapping[str, Any]) -> DeviceShareArgs:
    """Raises ArgumentError."""
    found = read_args(NAME, DeviceShareArgs, args)
    check_weights(NAME, "scoringStrategy.resources", found.scoring_strategy.resources)
    return found
