"""Requests, their phases and outputs, the waiting queue, running sequences as arrays."""

from tidegate.request.messages import Envelope, decode_deltas, decode_envelope, encode_deltas, encode_envelope
from tidegate.request.output import RequestOutput, Timing, TokenDelta, TokenLogprob
from tidegate.request.phase import FinishReason, Phase, check_move, check_moves
from tidegate.request.queue import QueueKey, WaitingQueue
from tidegate.request.request import CacheAccess, Request, check_vocabulary, token_array
from tidegate.request.sampling_params import SamplingParams
from tidegate.request.sequences import Milestones, RunningSequences, SequenceStart

__all__ = [
    "CacheAccess",
    "Envelope",
    "FinishReason",
    "Milestones",
    "Phase",
    "QueueKey",
    "Request",
    "RequestOutput",
    "RunningSequences",
    "SamplingParams",
    "SequenceStart",
    "Timing",
    "TokenDelta",
    "TokenLogprob",
    "WaitingQueue",
    "check_move",
    "check_moves",
    "check_vocabulary",
    "decode_deltas",
    "decode_envelope",
    "encode_deltas",
    "encode_envelope",
    "token_array",
]
