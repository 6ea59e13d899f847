from __future__ import annotations

from tests.kernel.devices.fake_nvml import fake_nvml, nvml_library

__all__ = ["fake_nvml", "nvml_library"]
