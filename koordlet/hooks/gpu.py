"""Which GPUs a container sees, and its share of one (docs/reference/hooks.md 2.6).

Only a runtime that creates a container can give it variables and mounts; reconciling cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from koordlet.decision.given import VISIBLE_GPUS
from koordlet.decision.options import Options, about, absolute
from koordlet.decision.snapshot import Pod, Snapshot
from koordlet.decision.strategy import Adjustment, EnvVar, Hook, Level, Mount, Stage, Subject
from koordlet.decision.why import Input, Why
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import DeviceAllocation
from koordlet.protocol.errors import AnnotationError, Problem
from koordlet.protocol.resources import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO

NAME = "gpu-env"
HAMI_LOCK_DIRECTORY = "/tmp/vgpulock"
"""The lock that HAMi-core containers of a node share; must exist on the node."""

_WHOLE_CARD_PERCENT = 100


class GpuEnvOptions(Options, frozen=True):
    """The library must exist on the node once a pod asks for it."""

    hami_library: Annotated[str, about("HAMi-core library on this node.")] = (
        "/usr/local/vgpu/libvgpu.so"
    )
    on_missing: Annotated[
        Literal["tell", "evict"],
        about(
            "What to do about a container that started without koordlet and sees GPUs that are not "
            'its own: "tell" reports it, "evict" also evicts its pod once, if that is allowed.'
        ),
    ] = "tell"


def _check(options: GpuEnvOptions) -> Iterator[Problem]:
    yield from absolute(options.hami_library, "hami_library")


def _evaluate(subject: Subject, snapshot: Snapshot, options: GpuEnvOptions) -> Adjustment:
    pod = subject.pod
    allocated = keys.DEVICE_ALLOCATED.read(pod.annotations) if pod is not None else None
    gpus = (allocated or {}).get("gpu", ())
    if pod is None or not gpus:
        return Adjustment()
    minors = ",".join(str(gpu.minor) for gpu in gpus)
    text = f"the scheduler gave the pod GPUs {minors}"
    why = Why("gpu-env.devices", text, (Input(keys.DEVICE_ALLOCATED.name, minors),))
    uuids = tuple(gpu.id for gpu in gpus if gpu.id)
    visible = EnvVar(VISIBLE_GPUS, minors, why, uuids)
    try:
        provider = keys.GPU_ISOLATION_PROVIDER.read(pod.labels)
    except AnnotationError as error:
        text = f"{pod.title}: {error}; koordlet does not share the GPU"
        return Adjustment(env=(visible,), notes=(Why("gpu-env.unknown-provider", text),))
    if provider is None:
        return Adjustment(env=(visible,))
    return _hami_core(options, pod, gpus[0], visible)


def _hami_core(
    options: GpuEnvOptions, pod: Pod, gpu: DeviceAllocation, visible: EnvVar
) -> Adjustment:
    """The share of the first card stands for each card, as in the reference."""
    ratio, memory = gpu.resources.get(GPU_MEMORY_RATIO), gpu.resources.get(GPU_MEMORY)
    if ratio is not None and ratio.value >= _WHOLE_CARD_PERCENT:
        return Adjustment(env=(visible,))
    missing = GPU_MEMORY_RATIO if ratio is None else GPU_MEMORY
    if ratio is None or memory is None:
        text = (
            f"{pod.title}: {keys.DEVICE_ALLOCATED.name} has no {missing} for GPU {gpu.minor}; "
            "the container sees the GPU without a limit"
        )
        return Adjustment(env=(visible,), notes=(Why("gpu-env.no-share", text),))
    text = f"{ratio} % of GPU {gpu.minor}, isolated by HAMi-core"
    facts = [Input(GPU_MEMORY_RATIO, ratio.value, "%"), Input(GPU_MEMORY, memory.value, "bytes")]
    core = gpu.resources.get(GPU_CORE)
    if core is not None:
        facts.append(Input(GPU_CORE, core.value, "%"))
    why = Why("gpu-env.hami-core", text, tuple(facts))
    env = [visible, EnvVar("CUDA_DEVICE_MEMORY_LIMIT", str(memory.value), why)]
    if core is not None:
        env.append(EnvVar("CUDA_DEVICE_SM_LIMIT", str(core.value), why))
    env.append(EnvVar("LD_PRELOAD", options.hami_library, why))
    paths = (options.hami_library, HAMI_LOCK_DIRECTORY)
    return Adjustment(env=tuple(env), mounts=tuple(Mount(path, path, why) for path in paths))


HOOK = Hook(
    name=NAME,
    help="Variables that tell a container its GPUs.",
    options=GpuEnvOptions(),
    levels=(Level.CONTAINER,),
    function=_evaluate,
    stages=(Stage.CREATE_CONTAINER,),
    check=_check,
)
