"""The marks that committed distributed writes leave in ``staging/``."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import kudu_core as kc
from kudu_core.common.format import names
from tests.support.inside import sweep_soon

SCHEMA = pa.schema([("k", pa.int64())])


def test_a_mark_that_somebody_is_writing_stays_until_the_next_open(tmp_path: Path) -> None:
    """Its writer may be another thread of this process; behind a lease that was taken there is none."""
    path = tmp_path / "t"
    mark = path / "staging" / f".{names.mark_of_job(f'job-{7:032x}')}.0123.tmp"
    with kc.create_table(path, SCHEMA, "k") as table:
        mark.write_text("[5,")
        sweep_soon(table)
        table.gc()
        assert mark.exists()
    kc.open_table(path, "rw").close()
    assert not mark.exists()
