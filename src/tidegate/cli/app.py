"""The command line: commands, version, exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from tidegate.base import ConfigError, TidegateError
from tidegate.cli.bench import bench
from tidegate.cli.console import quiet_libraries, show_error, show_log
from tidegate.cli.generate import generate
from tidegate.cli.ranks import is_follower
from tidegate.cli.replay import replay
from tidegate.cli.served_model import ModelOpener, ServedModel
from tidegate.cli.settings import ModelSettings
from tidegate.cli.sim import sim

FAILED = 2
INTERRUPTED = 130


def create_app() -> typer.Typer:
    """Build the commands. They find what opens a model in their context's ``obj``."""
    app = typer.Typer(
        name="tidegate",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_tidegate)
    app.command()(generate)
    app.command()(bench)
    app.command()(sim)
    app.command()(replay)
    return app


def main(arguments: Sequence[str] | None = None, open_model: ModelOpener | None = None) -> int:
    """Run a command line and return its exit code: 0, 2 for whatever the user can mend, 130 when interrupted."""
    with _streams():
        return _run(None if arguments is None else list(arguments), open_model or _open_model)


def _run(arguments: list[str] | None, open_model: ModelOpener) -> int:
    try:
        create_app()(args=arguments, prog_name="tidegate", obj=open_model)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except TidegateError as error:
        if not (is_follower() and isinstance(error, ConfigError)):  # rank 0 says the same
            show_error(error)
        return FAILED
    except MemoryError as error:
        show_error(ConfigError(f"out of memory: {str(error) or 'ask for less'}"))
        return FAILED
    except OSError as error:
        show_error(ConfigError(f"input or output failed: {error}"))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


@contextmanager
def _streams() -> Iterator[None]:
    """Give those that whoever started us has closed a place to go; a terminal of few characters must not end a run."""
    with ExitStack() as stack:
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                setattr(sys, name, stack.enter_context(open(os.devnull, mode, encoding="utf-8")))
                stack.callback(setattr, sys, name, None)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        yield


def _show_version(is_asked: bool) -> None:
    if is_asked:
        print(f"tidegate {version_of('tidegate')}")
        raise typer.Exit


def _tidegate(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Serve language models out of a paged cache: windows, scratch reuse, prefix reuse."""


def _open_model(settings: ModelSettings) -> ServedModel:
    quiet_libraries()
    show_log()
    # Here, because it imports torch: help and bad flags must answer at once.
    from tidegate.cli.runtime_model import RuntimeModel

    return RuntimeModel.open(settings)
