"""Workloads: arrivals, lengths, shared prefixes, sessions and traces."""

from tidegate.workload.build import build_workload
from tidegate.workload.content import VOCAB_SIZE, Content, content_seeds, content_tokens, seeded_tokens
from tidegate.workload.feed import Feed
from tidegate.workload.traces import TRACE_FORMATS, sample_path
from tidegate.workload.workload import Workload, WorkloadRequest

__all__ = [
    "TRACE_FORMATS",
    "VOCAB_SIZE",
    "Content",
    "Feed",
    "Workload",
    "WorkloadRequest",
    "build_workload",
    "content_seeds",
    "content_tokens",
    "sample_path",
    "seeded_tokens",
]
