"""What a command that fails says, in one line, and its exit code."""

from __future__ import annotations

import sys

import click

from kudu_core.cli.shared.exit_codes import BROKEN_PIPE, DAMAGED, FAILED, INTERRUPTED, USAGE
from kudu_core.errors import Corruption, KuduError, Locked


class ReaderGone(BaseException):
    """Whoever read stdout has closed it.  Not ``BrokenPipeError``, of which click makes an exit code of its
    own."""


class BadUsage(click.UsageError):
    """Arguments that cannot be understood; exit code 2."""


def exit_code(error: BaseException) -> int:
    """The exit code of what a command raised."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(error, ReaderGone | BrokenPipeError):
        return BROKEN_PIPE
    if isinstance(error, click.ClickException):
        return error.exit_code
    return DAMAGED if isinstance(error, Corruption) else FAILED


def told(error: BaseException) -> None:
    """Say on stderr, in one line, what went wrong; of a reader that has gone nothing.

    What is neither ours nor the system's is a defect, and is said to be one.
    """
    if isinstance(error, click.exceptions.Exit | SystemExit | ReaderGone | BrokenPipeError):
        return
    if isinstance(error, KeyboardInterrupt | click.Abort):
        say("interrupted")
    elif isinstance(error, click.ClickException):
        path = f"{error.ctx.command_path}: " if isinstance(error, click.UsageError) and error.ctx else ""
        say(f"{path}{one_line(error.format_message())}", "usage" if error.exit_code == USAGE else "error")
    else:
        say(line_of(error), "error")


def line_of(error: BaseException) -> str:
    """What is told of an error."""
    if isinstance(error, Locked):
        who = f"process {error.pid} on {error.host}" if error.pid is not None else "another process"
        return (
            f"{error.path} is open for writing by {who}: close it there, or wait with --timeout SECONDS"
        )
    if isinstance(error, OSError) and not isinstance(error, KuduError):
        what = f"{error.filename}: " if error.filename is not None else ""
        return one_line(f"{what}{error.strerror or error}")
    if isinstance(error, KuduError) or type(error).__module__.startswith("pyarrow"):
        return one_line(str(error))
    return one_line(f"{type(error).__name__}: {error} (a defect of kudu_core: --debug shows where)")


def one_line(text: str) -> str:
    """Without line breaks, which messages of several findings have."""
    return " ".join(text.split())


def say(text: str, kind: str = "") -> None:
    """One line on stderr."""
    print(f"kudu_core: {kind}: {text}" if kind else f"kudu_core: {text}", file=sys.stderr, flush=True)
