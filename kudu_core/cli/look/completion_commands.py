"""``completion``: what a shell needs to complete commands and their options."""

from __future__ import annotations

import click

from kudu_core.cli.shared.showing import write_line

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print a script that lets SHELL complete commands and options.

    For bash: eval "$(kudu_core completion bash)" in ~/.bashrc.
    """
    from click.shell_completion import get_completion_class

    from kudu_core.cli.command_group import kudu_core_command

    made = get_completion_class(shell)
    assert made is not None
    # Its constructor asks bash for its version, which is of no use to a script that is only printed.
    template = made.source_template
    names = {
        "complete_func": "_kudu_core_completion",
        "complete_var": "_KUDU_CORE_COMPLETE",
        "prog_name": str(kudu_core_command.name and "kudu_core"),
    }
    write_line(template % names)
