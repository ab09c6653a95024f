"""Flags that both commands have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Attention(StrEnum):
    """How the model's layers attend."""

    HYBRID = "hybrid"
    FULL = "full"


class Dtype(StrEnum):
    """What the model computes in."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


_SERVING = "Model and cache"
_SAMPLING = "Sampling"

ModelFlag = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PATH",
        help="A Hugging Face directory or a .gguf file. Default: the packaged SmolLM2-135M-Instruct.",
        rich_help_panel=_SERVING,
        show_default=False,
    ),
]
AttentionFlag = Annotated[
    Attention,
    typer.Option(
        metavar="MODE",
        help="full: as trained. hybrid: every third layer full, the others with a window and sink tokens.",
        rich_help_panel=_SERVING,
    ),
]
WindowFlag = Annotated[int, typer.Option(help="Window of the hybrid layers, in tokens.", rich_help_panel=_SERVING)]
SinksFlag = Annotated[int, typer.Option(help="Sink tokens of the hybrid layers.", rich_help_panel=_SERVING)]
DtypeFlag = Annotated[
    Dtype, typer.Option(metavar="DTYPE", help="Weights and cache: float32 or bfloat16.", rich_help_panel=_SERVING)
]
BlockSizeFlag = Annotated[int, typer.Option(help="Tokens per block.", rich_help_panel=_SERVING)]
ChunkSizeFlag = Annotated[int, typer.Option(help="Most prompt tokens in a step.", rich_help_panel=_SERVING)]
ScratchFlag = Annotated[
    bool,
    typer.Option(
        "--scratch/--no-scratch",
        help="Let blocks that a step both writes and leaves behind share slots, layer by layer.",
        rich_help_panel=_SERVING,
    ),
]
MemoryFlag = Annotated[
    int, typer.Option("--kv-cache-memory-bytes", help="Memory of the cache.", rich_help_panel=_SERVING)
]
ChatFlag = Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")]
MaxTokensFlag = Annotated[int, typer.Option(help="Most tokens to produce.")]
SeedFlag = Annotated[int, typer.Option(help="Seed of whatever is random.")]
TemperatureFlag = Annotated[float, typer.Option(help="0: the most likely token.", rich_help_panel=_SAMPLING)]
TopKFlag = Annotated[int, typer.Option(help="0: off.", rich_help_panel=_SAMPLING)]
TopPFlag = Annotated[float, typer.Option(help="1: off.", rich_help_panel=_SAMPLING)]
MinPFlag = Annotated[float, typer.Option(help="0: off.", rich_help_panel=_SAMPLING)]
RepetitionFlag = Annotated[float, typer.Option(help="1: off.", rich_help_panel=_SAMPLING)]
StopFlag = Annotated[
    list[str] | None,
    typer.Option("--stop", help="End at this text; may be given more than once.", rich_help_panel=_SAMPLING),
]
