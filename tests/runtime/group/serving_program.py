"""A rank that serves the packaged model: rank 0 submits requests and writes what came of them as JSON.

``python -m tests.runtime.group.serving_program OUTPUT NUM_REQUESTS``; ``forever``: requests that never end.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tidegate.request import Request, RequestOutput, SamplingParams, token_array
from tidegate.runtime import RuntimeConfig
from tidegate.runtime.group import GroupEnvironment, RankGroup, build_group
from tidegate.runtime.group.distributed import DistributedExchange
from tidegate.runtime.model import load_model

TEXT = Path(__file__).parents[3] / "examples" / "prompts.txt"
GREEDY = SamplingParams(temperature=0.0)
SETTINGS: dict[str, Any] = {
    "device_bytes": 64 << 20,
    "max_seq_len": 512,
    "max_batch_size": 16,
    "max_num_tokens": 128,
    "max_partial_prefills": 2,
}
NEW_TOKENS = 8


def prompts(encode: object, count: int) -> list[list[int]]:
    """Cut ``count`` prompts of 8 to 71 tokens out of the example text."""
    tokens = encode(TEXT.read_text())  # type: ignore[operator]  # a tokenizer's method
    return [tokens[i * 11 : i * 11 + 8 + i % 64] for i in range(count)]


def requests(encode: object, count: int, max_tokens: int) -> list[Request]:
    """Return greedy requests, with what a near tie needs to be told."""
    return [
        Request(
            request_id=f"r{i}",
            prompt=token_array(prompt),
            sampling=SamplingParams(temperature=0.0, logprobs=2),
            max_tokens=max_tokens,
            ignore_eos=True,
        )
        for i, prompt in enumerate(prompts(encode, count))
    ]


def record(output: RequestOutput) -> dict[str, object]:
    """Return tokens, and how far the two likeliest were apart at each."""
    gaps = [entry.top[0][1] - entry.top[1][1] for entry in output.logprobs or ()]
    return {"tokens": output.tokens.tolist(), "gaps": gaps, "reason": str(output.finish_reason)}


def main() -> None:
    """Serve as one rank."""
    path, count = Path(sys.argv[1]), sys.argv[2]
    forever = count == "forever"
    config = RuntimeConfig.from_settings({**SETTINGS, "attention_dp_config": {"enable_balance": True}})
    engine, text = load_model(config.model)
    with closing(DistributedExchange(GroupEnvironment.read(os.environ))) as exchange:
        group = build_group([engine], exchange, config, text=text)
        if not group.is_leader:
            while not group.is_stopped:
                group.step()
            group.close()
            return
        for request in requests(text.encode, 64 if forever else int(count), 400 if forever else NEW_TOKENS):
            group.submit(request)
        outputs = _lead(group, path if forever else None)
        path.write_text(json.dumps({name: record(output) for name, output in outputs.items()}))
        group.close()


def _lead(group: RankGroup, started: Path | None) -> dict[str, RequestOutput]:
    outputs: dict[str, RequestOutput] = {}
    num_steps = 0
    while group.has_work:
        outputs |= {delta.request_id: delta.output for delta in group.step() if delta.output is not None}
        num_steps += 1
        if started is not None and num_steps == 12:
            started.write_text("running")
    group.stop()
    while not group.is_stopped:
        group.step()
    return outputs


if __name__ == "__main__":
    main()
