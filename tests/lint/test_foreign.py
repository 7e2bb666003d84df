"""Foreign memory is read in one place: what reads an array's buffers, or has pyarrow do so, stands here.

``common/types/foreign.py`` checks; ``casts.cast``, ``ColumnBuffers.from_arrow`` and ``nested_flatten`` ask
it.  A function elsewhere that reads the memory of an array from outside would go around them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lint.package.sources import parsed, walk

PACKAGE = Path(__file__).resolve().parents[2] / "kudu_core"

# What reads an array's memory -> the files that may call it, and why.
READING: dict[str, dict[str, str]] = {
    "buffers": {
        "common/types/foreign.py": "checks them",
        "common/rows/rowblock.py": "from_arrow takes them over, checked",
        "common/types/stored_arrays.py": "after check_bytes or check_layout, or of our own cells",
        "common/types/nested/nested_flatten.py": "checks them, level by level",
        "common/types/nested/nested_casts.py": "after check_layout",
        "common/types/nested/nested_assemble.py": "of columns that the table has stored",
        "table/backup/restore.py": "of a backup's file, after validate(full=True)",
        "rowset/disk/cell_order.py": "of a dictionary that Arrow has made of stored cells",
    },
    "dictionary_decode": {
        "common/types/stored_arrays.py": "of dictionary_values",
        "common/types/nested/nested_casts.py": "after check_layout",
    },
    "dictionary_values": {
        "common/types/casts.py": "after check_bytes",
        "common/types/stored_arrays.py": "after check_bytes",
        "common/where/rewritten.py": "after validate(full=True)",
        "common/rows/shown.py": "of our own rows",
    },
    "run_end_decode": {"common/types/casts.py": "after check_bytes"},
    "combine_chunks": {
        "common/rows/python_columns.py": "of what pa.array has made of Python's values",
        "common/where/filter_lists.py": "after check_chunks",
        "table/backup/backup_file.py": "after validate(full=True)",
        "table/merge/sides.py": "of what pyarrow has computed",
        "table/merge/merge_rows.py": "of rows that the table has stored",
    },
    "concat_arrays": {
        "common/types/nested/nested_casts.py": "of what it has made",
        "table/merge/merge_source.py": "after check_layout",
        "common/where/nested/whole.py": "of what pyarrow has computed",
    },
    "_import_from_c": {
        "table/read/few_keys.py": "of what our kernel has written",
        "table/read/short_scan.py": "of what our kernel has written",
    },
    "from_arrow": {
        "table/backup/restore.py": "of a backup's file, after validate(full=True)",
        "common/rows/conform.py": "columns of a write or of keys",
        "common/where/listed.py": "of what pyarrow has sorted, of a checked list",
        "table/calls/conform.py": "names of operations",
        "table/jobs/stager.py": "the column by which the last row of a key is known",
        "table/merge/merge_source.py": "columns that the table does not have, after check_layout",
        "table/write/batch_reads.py": "rows that the table has stored",
        "common/schema/declare.py": "ColumnType's, of a type alone",
        "common/types/types.py": "ColumnType's, of a type alone",
        "common/types/nested/nested_nodes.py": "ColumnType's, of a type alone",
        "sql/named_columns.py": "ColumnType's, of a type alone",
        "common/where/nested/assembled.py": "ColumnType's, of a type alone",
        "common/types/nested/nested_casts.py": "ColumnType's, of a type alone",
        "common/rows/nested_values.py": "ColumnType's, of a type alone",
        "engines/spark/": "ColumnType's, of a type alone",
        "table/read/arrow_out.py": "polars', of our own rows",
        "engines/arrow/polars_source.py": "polars', of our own rows",
    },
}


def calls(tree: ast.Module) -> Iterator[tuple[int, str, ast.Call]]:
    for node in walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            yield node.lineno, name, node


def sources() -> list[tuple[str, ast.Module]]:
    return [
        (path.relative_to(PACKAGE).as_posix(), parsed(path.read_text()))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def test_foreign_memory_is_read_at_the_doors_alone() -> None:
    found, used = [], set()
    for file, tree in sources():
        for line, name, _ in calls(tree):
            if name not in READING:
                continue
            allowed = [where for where in READING[name] if file.startswith(where)]
            used.update((name, where) for where in allowed)
            if not allowed:
                found.append(f"{file}:{line}: {name}")
    assert not found, f"reads foreign memory unchecked (or give the reason in READING): {found}"
    assert used == {(name, where) for name, files in READING.items() for where in files}, "no longer used"


@pytest.mark.parametrize("file", ["common/rows/conform.py", "table/calls/conform.py", "table/jobs/stager.py"])
def test_what_is_taken_over_was_cast(file: str) -> None:
    """``from_arrow`` asserts the type, which ``cast`` sees to: who calls one calls both, and names it."""
    tree = parsed((PACKAGE / file).read_text())
    taken = [node for _, name, node in calls(tree) if name == "from_arrow"]
    assert taken
    assert any(name == "cast" for _, name, _ in calls(tree))
    for node in taken:
        assert len(node.args) >= 3, f"{file}:{node.lineno}: an error could not name the column"


def test_the_doors_ask() -> None:
    """Each of the checks is asked for where memory is read."""
    asked = {
        "common/rows/rowblock.py": {"extent_of", "validity_of", "check_size", "check_cells"},
        "common/types/casts.py": {"extent_of", "is_null_throughout", "check_bytes"},
        "common/types/nested/nested_flatten.py": {"extent_of", "validity_of", "check_cells", "check_ranges"},
    }
    for file, wanted in asked.items():
        names = {name for _, name, _ in calls(parsed((PACKAGE / file).read_text()))}
        assert wanted <= names, file
