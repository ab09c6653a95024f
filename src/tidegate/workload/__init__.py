"""Workloads: arrivals, lengths, shared prefixes, sessions and traces."""

from tidegate.workload.content import VOCAB_SIZE, Content, content_tokens
from tidegate.workload.workload import Workload, WorkloadRequest

__all__ = ["VOCAB_SIZE", "Content", "Workload", "WorkloadRequest", "content_tokens"]
