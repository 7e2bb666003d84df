"""``import kudu_core`` loads what a table needs and nothing else: the rest is imported where it is used.

What is counted is modules, in a fresh interpreter; what it costs in CPU is in bench/README.md.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# Module, with all that lies in it -> why it waits until somebody needs it.
LATER = {
    "pandas": "pyarrow imports it with the first value that it makes of a Python one: pa.scalar, pa.repeat",
    "pyarrow.dataset": "it imports pandas",
    "pyarrow.acero": "it imports pyarrow.dataset",
    "pyarrow.parquet": "files of others",
    "pyarrow.flight": "a server",
    "polars": "an extra: Scan.to_polars",
    "duckdb": "nothing in the package needs it",
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
    "difflib": "only for a mistake",
    "secrets": "it imports hmac and hashlib; os.urandom is there",
    "hashlib": "nothing in the package needs it",
    "tests": "file systems and faults for tests are no part of the package",
    "pytest": "tests",
    "_pytest": "tests",
    "hypothesis": "tests",
}


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """What is loaded after ``import kudu_core`` and nothing else."""
    program = "import sys, kudu_core; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()


@pytest.mark.parametrize("later", LATER)
def test_not_imported_with_the_package(loaded: list[str], later: str) -> None:
    found = [name for name in loaded if name == later or name.startswith(f"{later}.")]
    assert "kudu_core.table.table" in loaded
    assert not found, f"import kudu_core loads {found[:3]}: {LATER[later]}"


def test_each_of_them_is_there_to_be_imported() -> None:
    """Or the test above could not fail.  (Those that are extras need not be installed everywhere.)"""
    for later in ("pandas", "pyarrow.dataset", "pyarrow.acero", *(n for n in LATER if "kudu_core" in n)):
        assert find_spec(later) is not None, f"there is no {later}: mend this list"
