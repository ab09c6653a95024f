"""What a step's time depends on: memory, arithmetic, links, and the host."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.base import ConfigError, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One accelerator. Rates are the vendor's; ``memory_share`` and ``flops_share`` of them is what kernels reach.

    ``flops_per_s`` is dense bf16, ``flops_per_s_8bit`` dense fp8. ``link_bytes_per_s`` is one direction of what joins
    accelerators, ``host_bytes_per_s`` of what joins one to its host. ``host_step_s`` is the time of a step in which the
    host keeps the accelerator waiting.
    """

    name: str
    memory_bytes: int
    memory_bytes_per_s: float
    flops_per_s: float
    flops_per_s_8bit: float
    link_bytes_per_s: float
    host_bytes_per_s: float
    link_latency_s: float = 10e-6
    host_step_s: float = 1.0e-3
    memory_share: float = 0.8
    flops_share: float = 0.6


def _preset(name: str, memory: tuple[int, float], flops: tuple[float, float], links: tuple[float, float]) -> Hardware:
    return Hardware(
        name=name,
        memory_bytes=memory[0] * 10**9,
        memory_bytes_per_s=memory[1] * 1e12,
        flops_per_s=flops[0] * 1e12,
        flops_per_s_8bit=flops[1] * 1e12,
        link_bytes_per_s=links[0] * 1e9,
        host_bytes_per_s=links[1] * 1e9,
    )


# Vendors' data sheets, SXM forms: memory in GB and TB/s, dense TFLOPS in bf16 and fp8, NVLink and host link in GB/s
# each way. The two workstation cards have no NVLink: PCIe 4.0 and 5.0.
HARDWARE = {
    "h100": _preset("h100", (80, 3.35), (989, 1979), (450, 64)),
    "h200": _preset("h200", (141, 4.8), (989, 1979), (450, 64)),
    "b200": _preset("b200", (180, 8.0), (2250, 4500), (900, 64)),
    "gb200": _preset("gb200", (186, 8.0), (2500, 5000), (900, 450)),
    "rtx4090": _preset("rtx4090", (24, 1.008), (165, 330), (32, 32)),
    "rtxpro6000": _preset("rtxpro6000", (96, 1.597), (504, 1008), (64, 64)),
}


def hardware_of(name: str) -> Hardware:
    """Return a preset. Raises ``ConfigError`` naming those there are."""
    if name not in HARDWARE:
        raise ConfigError(f"cost.hardware={shown(name)} must be one of {sorted(HARDWARE)}", field="cost.hardware")
    return HARDWARE[name]
