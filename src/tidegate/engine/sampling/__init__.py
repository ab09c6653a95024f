"""Sampling: from a step's logits to one token per row."""

from tidegate.engine.sampling.batch import (
    NO_LOGPROBS,
    History,
    LogitBias,
    Logprobs,
    SampledTokens,
    SamplingBatch,
    TokenLists,
)
from tidegate.engine.sampling.sampler import adjust_logits, sample, token_logprobs

__all__ = [
    "NO_LOGPROBS",
    "History",
    "LogitBias",
    "Logprobs",
    "SampledTokens",
    "SamplingBatch",
    "TokenLists",
    "adjust_logits",
    "sample",
    "token_logprobs",
]
