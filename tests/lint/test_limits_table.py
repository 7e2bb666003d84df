"""docs/format.md, "Limits": every limit of a format is one constant, and the table has them all."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kudu_core._ext.keys import block_search
from kudu_core.common.schema import schema
from kudu_core.table.runs import spilled
from kudu_core.table.runs import staged as job_runs
from tests.lint.package.sources import parsed, walk

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kudu_core"
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

NO_FORMAT = {
    "common/partition/hash_dimension._MAX_ENUMERATED": "when pruning is not worth it",
    "common/types/nested/nested_nodes.MAX_DEPTH": "of a type, which is stored as columns",
    "common/types/nested/nested_nodes.MAX_LEAVES": "of a type, stored as columns: MAX_COLUMNS of them",
    "table/stored/indexes.MAX_INDEX_COLUMNS": "docs/indexes.md",
    "table/stored/indexes.MAX_INDEXES": "docs/indexes.md",
    "table/stored/indexes.MAX_NAME_BYTES": "docs/indexes.md",
    "common/types/nested/nested_nodes.MAX_LEAF_NAME_BYTES": "of a column's name: MAX_NAME_BYTES",
    "common/partition/partitions.MAX_ROUTED_COLUMNS": "when routing takes the general path",
    "rowset/history/merging.MAX_COLUMN_BYTES": "pieces of a merge",
    "table/ingest/build.MAX_BYTES": "pieces of an ingest",
    "tablet/maintain/compaction_lane.MAX_ROUNDS": "how often",
    "tablet/compact/merge.MAX_ROUNDS": "how often",
    "tablet/maintain/merge_policy.MAX_INPUTS": "what one merge takes",
    "tablet/maintain/merge_policy.MAX_UNITS": "of a budget",
    "wal/tail.MAX_RESTARTS": "how often",
    "wal/segments.MAX_SPARES": "how many are kept",
    "cfile/columns/statistics.HAS_MAX": "a flag",
    "cfile/columns/statistics.MAX_EXACT": "a flag",
}
"""Constants that are called like limits and bound nothing that is stored."""

ROOMS = ("common", "cfile", "wal", "rowset", "tablet", "table")
LIMIT_LIKE = re.compile(r"_?(MAX|LIMIT)(_[A-Z_]+)?|[A-Z_]+_(LIMIT|MAX)(_[A-Z_]+)?")


def rows() -> list[tuple[str, str]]:
    """(limit as text, constant) of the table."""
    section = (ROOT / "docs" / "format.md").read_text().split("\n## Limits\n", 1)[1].split("\n## ")[0]
    found = re.findall(r"^\| [^|]+ \| ([^|]+) \| `([^`|]+)` \| [^|]+ \|$", section, flags=re.MULTILINE)
    assert len(found) == section.count("\n| ") - 2, "a row of the table that is not read"
    return found


def number(text: str) -> int:
    """``64 KiB``, ``10,000``, ``2^32 - 1``."""
    words = text.replace(",", "").replace("^", "**").split()
    return eval(
        " ".join(f"* {UNITS[w]}" if w in UNITS else w for w in words if w not in ("bytes", "characters"))
    )


def constants() -> Iterator[str]:
    """Every constant of the rooms that is called like a limit."""
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            name = str(path.relative_to(PACKAGE).with_suffix(""))
            for node in parsed(path.read_text()).body:
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                for target in targets:
                    if isinstance(target, ast.Name) and LIMIT_LIKE.fullmatch(target.id):
                        yield f"{name}.{target.id}"


@pytest.mark.parametrize(("text", "constant"), rows())
def test_the_table_says_what_the_constant_is(text: str, constant: str) -> None:
    module, _, name = constant.rpartition(".")
    assert number(text) == getattr(importlib.import_module(f"kudu_core.{module.replace('/', '.')}"), name)


def test_every_limit_is_in_the_table() -> None:
    listed = [constant for _, constant in rows()]
    assert len(set(listed)) == len(listed)
    found = set(constants())
    assert found - set(listed) - NO_FORMAT.keys() == set(), "limits that docs/format.md does not list"


def named(tree: ast.Module, module: str, name: str) -> str:
    """A constant as the table names it, that a module calls so."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
            return f"{str(node.module).removeprefix('kudu_core.').replace('.', '/')}.{name}"
    return f"{module}.{name}"


def test_whole_files_are_read_up_to_a_limit_of_the_table() -> None:
    """What ``read_bytes`` is given is a constant that the table has, so that its writer can ask it."""
    listed = {constant for _, constant in rows()}
    sizes = {"int((upper - lower).sum()) * 4", "2 * COMMITTED_STRIDE", "len(data)"}  # that are known
    seen = 0
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            tree, module = parsed(path.read_text()), str(path.relative_to(PACKAGE).with_suffix(""))
            for call in walk(tree):
                if isinstance(call, ast.Call) and getattr(call.func, "attr", None) == "read_bytes":
                    limit = ast.unparse(call.args[-1])
                    seen += 1
                    assert limit in sizes or named(tree, module, limit) in listed, f"{path}: {limit}"
    assert seen >= 7


def test_kernels_and_other_modules_have_room_for_what_is_allowed() -> None:
    def find(columns: int) -> object:
        cells = np.zeros(1, np.uint8)
        return block_search.find([(cells, cells, 1, False)] * columns, np.zeros(1, np.int64), 1024)

    assert find(schema.MAX_KEY_COLUMNS) is not None
    with pytest.raises(ValueError, match="65 columns"):
        find(schema.MAX_KEY_COLUMNS + 1)
    staged = (
        spilled.NUMBER_ID, spilled.OPERATION_ID, spilled.STATUS_ID, job_runs.SEQUENCE_ID,
    )  # fmt: skip
    assert min(staged) >= schema.MAX_COLUMN_ID, "a column of a table could have the id of another one"
    assert schema.MAX_COLUMNS < 1 << 16, "what a record's section counts"
