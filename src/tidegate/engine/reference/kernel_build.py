"""Build the native kernel on first use and keep it, named by everything that decides its code.

It is plain C++ behind a C interface: two seconds to build where a torch extension takes thirty, and no tie to torch's
ABI. It shares torch's OpenMP runtime, since that is already loaded under the same name.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_LOG = logging.getLogger(__name__)
_SOURCE = Path(__file__).with_name("paged_attention.cpp")
_HEADER = Path(__file__).with_name("vector_math.h")
_FLAGS = ("-O3", "-march=native", "-std=c++17", "-fPIC", "-shared", "-fopenmp", "-fno-math-errno")
_BUILD_TIMEOUT_S = 120


def load_kernel_library(cache: Path) -> ctypes.CDLL | None:
    """Return the built library; None, with a log line saying why, where it cannot be had."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        _LOG.warning("no C++ compiler found: attention runs in plain torch, several times slower")
        return None
    try:
        return ctypes.CDLL(str(_built(compiler, cache / "kernels")))
    except subprocess.CalledProcessError as error:
        _LOG.warning("%s failed: attention runs in plain torch, several times slower\n%s", compiler, error.stderr)
    except (OSError, subprocess.TimeoutExpired) as error:
        _LOG.warning("the native kernel cannot be built or loaded (%s): attention runs in plain torch", error)
    return None


def _built(compiler: str, folder: Path) -> Path:
    version = _run([compiler, "--version"])
    recipe = "\n".join([_SOURCE.read_text(), _HEADER.read_text(), *_FLAGS, version, _processor()])
    library = folder / f"paged_attention-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as aside:
            built = Path(aside) / library.name
            _run([compiler, *_FLAGS, str(_SOURCE), "-o", str(built)])
            os.replace(built, library)
        _LOG.info("built %s", library)
    return library


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S)
    return done.stdout


def _processor() -> str:
    """Return the instruction sets: a cache shared between machines must not hand out the wrong code."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
