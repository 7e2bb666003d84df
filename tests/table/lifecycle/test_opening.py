"""What an open and a create rest on: other limits than before, staging in the way, two at once."""

from __future__ import annotations

import errno
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.table.lifecycle import locations
from tests.support.fs.faulty import Rule
from tests.support.fs.slow import PATH, SCHEMA, Disk, create, reopen, rows


def test_a_smaller_memory_limit_opens_what_a_larger_one_wrote(disk: Disk) -> None:
    table = create(disk, ingest_threshold_rows=1 << 31, ingest_threshold_bytes=1 << 30)
    table.insert({"k": list(range(17)), "s": ["z" * (1 << 20)] * 17})
    table.close()
    assert reopen(disk, memory_limit_bytes=16 << 20).count() == 17


def test_a_token_that_cannot_be_stored_is_refused(disk: Disk) -> None:
    table = create(disk)
    with pytest.raises(kc.InvalidArgument, match="Unicode"):
        table.insert(rows(0, 2), txn=("a\ud800", 1))
    table.close()
    assert reopen(disk).count() == 0


def test_staging_that_cannot_be_removed_keeps_nobody_from_opening(disk: Disk) -> None:
    create(disk).close()
    disk.memory.mkdir(f"{PATH}/staging", exist_ok=True)
    disk.memory.mkdir(f"{PATH}/staging/ingest-{0:032x}")
    disk.rules = [Rule(ops={"rmdir"}, error=errno.ENOTEMPTY)]
    reopen(disk).close()
    assert disk.fired == 1


def test_two_that_create_a_table_at_once(disk: Disk) -> None:
    """The second one must not take the first one's rows away."""
    with disk.held(lambda call: (call.op, call.path) == ("mkdir", PATH), lambda: create(disk)):
        table = create(disk)
        table.insert(rows(0, 5))
    table.insert(rows(5, 7))
    table.close()
    assert reopen(disk).count() == 7


def test_one_that_takes_a_table_beside_another_that_makes_it(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``exist_ok``: also where there was none yet at the first look."""
    usual = locations.create

    def second(*arguments: Any) -> None:
        usual(*arguments)
        usual(*arguments)

    monkeypatch.setattr(locations, "create", second)
    with kc.create_table(PATH, SCHEMA, "k", exist_ok=True, _fs=disk) as table:
        table.insert(rows(0, 3))
    disk.memory.rmtree(PATH)
    with pytest.raises(kc.TableExists, match="open it with open_table"):
        create(disk)
