"""``import kudu_core`` loads the errors; a table loads what it needs; the rest is imported where it is used.

What is counted is modules, in a fresh interpreter; what it costs in CPU is in bench/README.md.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeGuard

import pytest

import kudu_core as kc
from kudu_core import errors
from tests.lint.package.sources import parsed

ROOT = Path(__file__).resolve().parents[3]

# Module, with all that lies in it -> why it waits until somebody needs it.
LATER = {
    "pandas": "pyarrow imports it with the first value that it makes of a Python one: pa.scalar, pa.repeat",
    "pyarrow.dataset": "it imports pandas",
    "pyarrow.acero": "it imports pyarrow.dataset",
    "pyarrow.parquet": "files of others",
    "pyarrow.flight": "a server",
    "polars": "an extra: Scan.to_polars",
    "duckdb": "an extra: Table.sql",
    "sqlglot": "an extra: SQL text",
    "kudu_core.sql.translate": "only for SQL text",
    "pyspark": "an extra: kudu_core.spark",
    "py4j": "an extra: kudu_core.spark",
    "kudu_core.spark": "an extra",
    "kudu_core.engines.spark": "an extra",
    "kudu_core.engines.arrow.dataset": "it imports pyarrow.dataset",
    "kudu_core.table.repair.walk": "few repair a table",
    "kudu_core.table.repair.guessing": "few repair a table",
    "kudu_core.rowset.disk.salvage": "few repair a table",
    "kudu_core.tablet.store.salvage": "few repair a table",
    "kudu_core.wal.salvage": "few repair a table",
    "kudu_core.objects.client": "only for a table on a store",
    "kudu_core.objects.repeating": "likewise",
    "kudu_core.objects.check_store": "likewise",
    "kudu_core.objects.files.object_files": "likewise",
    "kudu_core.objects.object_lease": "likewise",
    "kudu_core.wal.objects": "likewise",
    "kudu_core.table.lifecycle.in_store": "likewise",
    "obstore": "an extra: s3, gcs, azure",
    "hdfs_native": "an extra: hdfs",
    "kudu_core.objects.clients": "only for a table on a store",
    "difflib": "only for a mistake",
    "secrets": "it imports hmac and hashlib; os.urandom is there",
    "hashlib": "only for a table on hdfs://",
    "tests": "file systems and faults for tests are no part of the package",
    "pytest": "tests",
    "_pytest": "tests",
    "hypothesis": "tests",
}


INIT = ROOT / "kudu_core" / "__init__.py"


def is_type_checking(node: ast.stmt) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@pytest.fixture(scope="module")
def loaded() -> Callable[[str], list[str]]:
    """What is loaded after ``import kudu_core`` and one statement, in a fresh interpreter."""

    @cache
    def after(statement: str) -> list[str]:
        program = f"import sys, kudu_core; {statement}; print(*sorted(sys.modules))"
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.split()

    return after


def test_the_import_alone_loads_the_errors(loaded: Callable[[str], list[str]]) -> None:
    with_errors = ["kudu_core", "kudu_core.errors"]
    assert [name for name in loaded("kudu_core.KuduError") if name.startswith("kudu_core")] == with_errors
    assert not {"pyarrow", "numpy", "dataclasses"} & set(loaded("kudu_core.KuduError"))


@pytest.mark.parametrize("later", LATER)
def test_not_imported_with_a_table(loaded: Callable[[str], list[str]], later: str) -> None:
    modules = loaded("kudu_core.open_table")
    found = [name for name in modules if name == later or name.startswith(f"{later}.")]
    assert "kudu_core.table.entry" in modules
    assert not found, f"kudu_core.open_table loads {found[:3]}: {LATER[later]}"


def test_every_public_name_is_there_when_it_is_used() -> None:
    names = set(kc.__all__)
    assert names <= set(dir(kc))
    for name in names:
        value = getattr(kc, name)
        assert value.__name__ == name and value.__module__.startswith("kudu_core."), name
        assert vars(kc)[name] is value, "the second use looks nothing up"


def test_what_type_checkers_see_is_what_is_loaded() -> None:
    (block,) = [node for node in parsed(INIT.read_text()).body if is_type_checking(node)]
    seen = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == {name: f"kudu_core.{home}" for name, home in kc._HOMES.items()}
    assert seen.keys() | {name for name in vars(errors) if name in kc.__all__} == set(kc.__all__)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'kudu_core' has no attribute 'opentable'"):
        kc.opentable  # noqa: B018


def test_each_of_them_is_there_to_be_imported() -> None:
    """Or the test above could not fail.  (Those that are extras need not be installed everywhere.)"""
    for later in ("pandas", "pyarrow.dataset", "pyarrow.acero", *(n for n in LATER if "kudu_core" in n)):
        assert find_spec(later) is not None, f"there is no {later}: mend this list"
