"""What koordlet exports of devices. The reference exports none of it; names are those of its series
(docs/reference/metrics.md 3.2), but for ``_total``, which Prometheus keeps for counters."""

from __future__ import annotations

from koordlet.decision.family import Family, Kind, Labels, Page

_CARD = ("gpu_minor", "gpu_device_uuid")
_PART = ("gpu_minor", "gpu_instance_uuid")
_POD = ("pod_uid", "pod_name", "pod_namespace")
_PORT = ("rdma_device", "rdma_port")


def _gauge(name: str, about: str, labels: Labels) -> Family:
    return Family(name, Kind.GAUGE, about, labels, page=Page.EXTERNAL)


NODE_GPU_CORE_USAGE = _gauge(
    "node_gpu_core_usage", "Multiprocessors of a GPU in use, percent", _CARD
)
NODE_GPU_MEMORY_USAGE = _gauge("node_gpu_memory_usage", "Memory of a GPU in use, bytes", _CARD)
NODE_GPU_MEMORY_CAPACITY = _gauge("node_gpu_memory_capacity", "Memory of a GPU, bytes", _CARD)
POD_GPU_CORE_USAGE = _gauge(
    "pod_gpu_core_usage", "Multiprocessors of a GPU that a pod uses, percent", (*_POD, *_CARD)
)
POD_GPU_MEMORY_USAGE = _gauge(
    "pod_gpu_memory_usage", "Memory of a GPU that a pod holds, bytes", (*_POD, *_CARD)
)
CONTAINER_GPU_CORE_USAGE = _gauge(
    "container_gpu_core_usage",
    "Multiprocessors of a GPU that a container uses, percent",
    ("container_id", "container_name", *_POD, *_CARD),
)
CONTAINER_GPU_MEMORY_USAGE = _gauge(
    "container_gpu_memory_usage",
    "Memory of a GPU that a container holds, bytes",
    ("container_id", "container_name", *_POD, *_CARD),
)
HOST_APPLICATION_GPU_CORE_USAGE = _gauge(
    "host_application_gpu_core_usage",
    "Multiprocessors of a GPU that a host application uses, percent",
    ("host_application_name", *_CARD),
)
HOST_APPLICATION_GPU_MEMORY_USAGE = _gauge(
    "host_application_gpu_memory_usage",
    "Memory of a GPU that a host application holds, bytes",
    ("host_application_name", *_CARD),
)
SYS_GPU_CORE_USAGE = _gauge(
    "sys_gpu_core_usage",
    "Multiprocessors of a GPU that processes of no pod and no application use, percent",
    _CARD,
)
SYS_GPU_MEMORY_USAGE = _gauge(
    "sys_gpu_memory_usage",
    "Memory of a GPU that processes of no pod and no application hold, bytes",
    _CARD,
)
NODE_GPU_INSTANCE_MEMORY_USAGE = _gauge(
    "node_gpu_instance_memory_usage", "Memory in use of a part of a GPU (MIG), bytes", _PART
)
NODE_GPU_INSTANCE_MEMORY_CAPACITY = _gauge(
    "node_gpu_instance_memory_capacity", "Memory of a part of a GPU (MIG), bytes", _PART
)
DEVICE_HEALTHY = _gauge(
    "device_healthy",
    "1 where a device works, 0 where it does not; absent where it is not known",
    ("device_type", "device_minor", "device_id"),
)
RDMA_RECEIVED = _gauge(
    "rdma_received_bytes_per_second", "Data that a port received, bytes per second", _PORT
)
RDMA_SENT = _gauge("rdma_sent_bytes_per_second", "Data that a port sent, bytes per second", _PORT)
RDMA_EVENTS = _gauge(
    "rdma_events_per_second",
    "A counter of a port or its driver, under its own name, per second",
    (*_PORT, "rdma_counter"),
)
