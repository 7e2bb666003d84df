"""How a command ends: docs/cli.md."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
USAGE: Final = 2
DAMAGED: Final = 3
INTERRUPTED: Final = 130
"""128 and the number of SIGINT."""
BROKEN_PIPE: Final = 141
"""128 and the number of SIGPIPE: how a program ends whose reader has gone."""
