"""The group of all commands: finds them by their names, and turns what they raise into an exit code."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TextIO

import click

from kudu_core.cli.registry import COMMANDS
from kudu_core.cli.shared.failures import ReaderGone, exit_code, told


class CommandGroup(click.Group):
    """Commands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = COMMANDS.get(cmd_name)
        if found is None:
            return None
        module, _, name = found[0].partition(":")
        command = getattr(import_module(f"kudu_core.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = str(args[0])
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, 1)
            hint = f"; did you mean {near[0]}?" if near else "; kudu_core --help lists them"
            raise click.UsageError(f"there is no command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise ReaderGone from None
        return done

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and end with its exit code: docs/cli.md has them."""
        given = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in given
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                code = super().main(given, prog_name, complete_var, standalone_mode=False, **extra)
            except BaseException as error:
                code = exit_code(error)
                if debug and not isinstance(error, SystemExit | click.ClickException):
                    raise
                told(error)
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    click.echo(f"kudu_core: warning: {message}", err=True)


def _without_arguments(function: Callable[..., Any]) -> click.Group:
    return click.group(
        cls=CommandGroup,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog="kudu_core COMMAND --help says what a command takes; docs/cli.md has examples.",
    )(function)


@_without_arguments
@click.version_option(sys.modules["kudu_core"].__version__, prog_name="kudu_core")
@click.option("--debug", is_flag=True, help="Show Python's traceback of an error.")
def kudu_core_command(debug: bool) -> None:
    """Tables with a primary key, in a folder or an object store.

    Commands that read run beside whoever has the table open for writing.
    """
