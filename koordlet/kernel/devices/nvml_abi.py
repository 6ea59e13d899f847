"""What the functions of NVML take and return (NVML API reference, ``nvml.h`` of CUDA 12)."""

from __future__ import annotations

from ctypes import Structure, c_char, c_int, c_uint, c_ulonglong, c_void_p
from enum import IntEnum

UUID_BYTES = 96
NAME_BYTES = 96
VERSION_BYTES = 80
XID_CRITICAL = 0x8
"""Type of the events about Xid errors."""
NOT_AVAILABLE = 2**64 - 1
"""Memory of a process, where the driver does not know it."""
NO_INSTANCE = 2**32 - 1
"""Instance of a process on a card that is not divided."""


class Code(IntEnum):
    """``nvmlReturn_t``, as far as something depends on it."""

    UNINITIALIZED = 1
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    UNKNOWN = 999


class PciInfo(Structure):
    _fields_ = (
        ("bus_id_legacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pci_device_id", c_uint),
        ("pci_subsystem_id", c_uint),
        ("bus_id", c_char * 32),
    )


class Memory(Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Utilization(Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class ProcessInfo(Structure):
    _fields_ = (
        ("pid", c_uint),
        ("used_gpu_memory", c_ulonglong),
        ("gpu_instance_id", c_uint),
        ("compute_instance_id", c_uint),
    )


class UtilizationSample(Structure):
    _fields_ = (
        ("pid", c_uint),
        ("timestamp_us", c_ulonglong),
        ("sm_percent", c_uint),
        ("memory_percent", c_uint),
        ("encoder_percent", c_uint),
        ("decoder_percent", c_uint),
    )


class EventData(Structure):
    _fields_ = (
        ("device", c_void_p),
        ("event_type", c_ulonglong),
        ("event_data", c_ulonglong),
        ("gpu_instance_id", c_uint),
        ("compute_instance_id", c_uint),
    )


RESULT = c_int
