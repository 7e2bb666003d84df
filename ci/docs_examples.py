"""An extension of griffe, which reads the docstrings for the site: examples in them, ``>>>`` and what follows
up to an empty line, are code."""

from __future__ import annotations

import textwrap
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Puts fences around examples."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring whose examples stand in fences."""
    done: list[str] = []
    example: list[str] = []
    for line in [*text.splitlines(), ""]:
        if example and line.strip():
            example.append(line)
        elif example:
            done += ["```pycon", *textwrap.dedent("\n".join(example)).splitlines(), "```", line]
            example = []
        elif line.lstrip().startswith(">>> "):
            example = [line]
        else:
            done.append(line)
    return "\n".join(done).rstrip("\n")
