"""How a reference engine is set up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidegate.base import ConfigError

DTYPES = ("float32", "bfloat16")
KERNELS = ("auto", "native", "torch")


@dataclass(frozen=True, slots=True)
class WindowPattern:
    """Run a full-attention model with windows: layers ``full_every-1, 2*full_every-1, …`` stay full.

    The query at ``p`` of any other layer reads positions ``max(0, p-window+1) .. p`` and the first ``sink_tokens``.
    """

    window: int
    sink_tokens: int = 0
    full_every: int = 3

    def __post_init__(self) -> None:
        if self.window < 1 or self.sink_tokens < 0 or self.full_every < 1:
            raise ConfigError(
                f"windows: window={self.window} and full_every={self.full_every} must be at least 1, "
                f"sink_tokens={self.sink_tokens} at least 0"
            )

    def is_full(self, layer_id: int) -> bool:
        """Tell whether this layer keeps full attention."""
        return (layer_id + 1) % self.full_every == 0


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """``kernel``: ``auto`` takes the native one where a compiler is found.

    ``prepack`` lays linear weights out for oneDNN once; None does so for bfloat16 only, because in fp32 its sums stray
    a little further from the dense reference than plain ones. ``cache`` is where built kernels are kept (default:
    ``$TIDEGATE_CACHE``, else ``~/.cache/tidegate``).
    """

    kernel: str = "auto"
    windows: WindowPattern | None = None
    prepack: bool | None = None
    cache: Path | None = None

    def __post_init__(self) -> None:
        if self.kernel not in KERNELS:
            raise ConfigError(f"kernel={self.kernel!r} is not one of {KERNELS}")
