"""Numbers of an open table in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from kudu_core.table.report.stats import metrics

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine

PREFIX = "kudu_core_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OTHER = re.compile(r"[^a-zA-Z0-9_]")


def exposition(engine: Engine) -> str:
    """What ``Table.metrics`` gives.  The kinds of its numbers it does not say, so they are untyped."""
    lines = []
    for name, value in metrics(engine).items():
        told = f"{PREFIX}{_OTHER.sub('_', name)}"
        lines += [f"# TYPE {told} untyped", f'{told}{{path="{_label(engine.path)}"}} {_number(value)}']
    return "\n".join([*lines, ""])


def _label(value: str) -> str:
    """A label's text: what would end it, or the line, is escaped."""
    printable = "".join(c if c.isprintable() else " " for c in value)
    return printable.replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


__all__ = ["CONTENT_TYPE", "exposition"]
