"""Each fsync of a call fails, one after the other, while Ctrl-C is pressed: that is final (protocol W8).

Both come at once, so the handler of the signal runs at the first place where it may: in the ``except`` that
catches the failure, if anything there is Python before the failure is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

import kudu_core as kc
from kudu_core.fs.base import is_temporary
from kudu_core.rowset.memory.memrowset import MemRowSet
from tests.support.fs.faulty import Call
from tests.support.fs.slow import SCHEMA, Disk, Thread, reopen, rows
from tests.support.inside import engine_of, log_of, poison_of
from tests.support.interrupts import fail_with_signal_pending

PATH = "/d/t"
FSYNCS = ("sync", "sync_dir")


@dataclass
class Syncs:
    """Watches the fsyncs of a disk; the one numbered ``fails`` does, with a signal pending."""

    fails: int = 0
    seen: list[str] = field(default_factory=list)
    failed: str = ""
    later: list[str] = field(default_factory=list)

    def __call__(self, call: Call) -> None:
        if call.op not in FSYNCS:
            return
        self.seen.append(call.path)
        if self.failed:
            self.later.append(call.path)
        if len(self.seen) == self.fails:
            self.failed = call.path
            fail_with_signal_pending()

    @property
    def names_nothing(self) -> bool:
        """Whether what failed is a new file or folder that nothing names yet."""
        name = os.path.basename(self.failed)
        return is_temporary(name) or name.endswith((".rows", ".delta")) or "/staging" in self.failed


def made(disk: Disk) -> kc.Table:
    parts = kc.RangePartition("k", [(0, 100), (100, 200)])
    options = {"maintenance": "manual", "ingest_threshold_rows": 50, "history_retention_s": 0}
    table = kc.create_table(PATH, SCHEMA, "k", partition_by=parts, options=options, _fs=disk)
    table.insert(rows(0, 20), txn=("app", 1))
    table.flush()
    table.insert(rows(20, 40), txn=("app", 2))
    return table


def row(table: kc.Table) -> object:
    return table.insert([{"k": 150, "a": 1, "s": "x"}])


def alter(table: kc.Table) -> object:
    return table.alter(drop_range=(100, 200), add=[kc.Column("more", "int32")])


def rolled(table: kc.Table) -> object:
    row(table)
    return log_of(table).roll()


def compact(table: kc.Table) -> object:
    table.flush()
    return table.compact(full=True)


CALLS: dict[str, Callable[[kc.Table], object]] = {
    "row": row,
    "rows": lambda table: table.upsert(rows(90, 110)),
    "bulk": lambda table: table.insert(rows(110, 190)),
    "flush": lambda table: table.flush(),
    "compact": compact,
    "alter": alter,
    "rolled": rolled,
    "tokens": lambda table: engine_of(table).writers.save(engine_of(table).committed_ts),
}


def count(name: str) -> int:
    disk = Disk()
    table = made(disk)
    disk.see = watch = Syncs()
    CALLS[name](table)
    disk.see = lambda call: None
    table.close()
    return len(watch.seen)


@pytest.mark.parametrize("name", CALLS)
def test_w8_a_failed_fsync_is_final_whatever_interrupts_its_handler(name: str) -> None:
    total = count(name)
    assert total
    for fails in range(1, total + 1):
        disk = Disk()
        table = made(disk)
        disk.see = watch = Syncs(fails)
        # On a thread of the pool no signal is handled: there the call says OSError.
        with pytest.raises((KeyboardInterrupt, OSError, kc.KuduError)):
            CALLS[name](table)
            raise KeyboardInterrupt  # it came in another thread's fsync, and the call did not need that
        where = f"fsync {fails} of {total}: {watch.failed}"
        assert watch.failed, where
        assert watch.names_nothing or poison_of(table) is not None, where
        for other in (row, CALLS["flush"], CALLS["tokens"], alter, kc.Table.close):
            with suppress(KeyboardInterrupt, OSError, kc.KuduError):
                other(table)
        if not watch.names_nothing:
            assert not watch.later, f"{where}, and then {watch.later}"
        elif "/staging" not in watch.failed:
            assert watch.failed not in watch.later, where
        disk.see = lambda call: None
        with suppress(kc.KuduError):
            table.close()
        with reopen(disk) as table:
            assert set(range(40)) <= set(table.scan(["k"]).to_table()["k"].to_pylist()), where


def test_w6_an_application_that_fails_poisons_whatever_interrupts_its_handler(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the record is in the log and in no store, and every later call waits for it."""
    table = made(disk)

    def fails(*_: object) -> None:
        monkeypatch.undo()
        fail_with_signal_pending()

    row(table)
    monkeypatch.setattr(MemRowSet, "change_one", fails)
    with pytest.raises(KeyboardInterrupt):
        table.delete([{"k": 150}])
    assert isinstance(poison_of(table), OSError)
    later = Thread(lambda: table.insert([{"k": 151, "a": 1, "s": "x"}]))
    later.join(10)
    assert isinstance(later.answer[0], kc.Poisoned)
    table.close()
    assert reopen(disk).get(150) is None


def test_the_first_failure_is_kept(disk: Disk) -> None:
    """A writer that was fenced says so, also where its fsync fails meanwhile."""
    table = made(disk)
    log = log_of(table)

    def see(call: Call) -> None:
        if call.op == "sync":
            log.poison(kc.Fenced("another writer"))
            raise OSError("the fsync")

    disk.see = see
    with pytest.raises(kc.Fenced):
        row(table)
    assert isinstance(log.poisoned, kc.Fenced)
