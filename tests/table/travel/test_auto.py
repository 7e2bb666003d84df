"""``open_table(mode="auto")``: for writing if nobody else has it so, else for reading."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.clock import ManualClock
from tests.support.fs.slow import LATE_S, Thread
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created, opened
from tests.support.processes import NOBODY, in_child

SCHEMA = pa.schema([("k", pa.int64())])


def test_one_writes_and_the_others_read(path: Path) -> None:
    kc.create_table(path, SCHEMA, "k").close()
    with kc.open_table(path, "auto") as first, kc.open_table(path, "auto") as second:
        assert (first.mode, second.mode) == ("rw", "r")
        first.insert({"k": [1]})

        def third_process() -> object:
            with kc.open_table(path, "auto") as third:
                return third.mode, third.count()

        assert in_child(third_process) == "('r', 1)"
        with pytest.raises(kc.ReadOnly):
            second.insert({"k": [2]})
        first.close()
        assert second.mode == "r", "it stays what it is"
        with kc.open_table(path, "auto") as third:
            assert third.mode == "rw"


def test_it_waits_for_the_writer_as_long_as_it_is_told(path: Path) -> None:
    writer = kc.create_table(path, SCHEMA, "k")
    with kc.open_table(path, "auto", timeout_s=0.05) as table:
        assert table.mode == "r"
    waiting = Thread(lambda: kc.open_table(path, "auto", timeout_s=LATE_S))
    writer.close()
    waiting.join(LATE_S)
    (table,) = waiting.answer
    assert table.mode == "rw"
    table.close()


def test_options_hold_for_what_it_becomes(path: Path) -> None:
    given = {"scan_threads": 3}
    with kc.create_table(path, SCHEMA, "k"), kc.open_table(path, "auto", options=given) as reader:
        assert reader.mode == "r" and reader.options.scan_threads == 3
    with kc.open_table(path, "auto", options=given) as writer:
        assert writer.mode == "rw" and writer.options.scan_threads == 3


def test_of_an_object_store() -> None:
    store, clock = MemoryObjectStore(), ManualClock()
    with created(store, clock=clock) as writer:
        with opened(store, "auto", clock=clock) as reader:
            assert reader.mode == "r"
        writer.insert({"k": [1], "v": [1]})
    with opened(store, "auto", clock=clock) as writer:
        assert writer.mode == "rw" and writer.insert({"k": [2], "v": [2]}).inserted == 1


def test_no_table_and_no_rights(path: Path, others: Path) -> None:
    """Neither is another writer: a reader in its place would hide what is wrong."""
    with pytest.raises(kc.TableNotFound):
        kc.open_table(path, "auto")
    kc.create_table(others / "t", SCHEMA, "k").close()
    for entry in (others / "t", *(others / "t").rglob("*")):
        entry.chmod(0o555 if entry.is_dir() else 0o444)
    user = NOBODY if os.geteuid() == 0 else None
    assert in_child(lambda: kc.open_table(others / "t", "auto"), user=user).startswith("PermissionError")
    for entry in (others / "t", *(others / "t").rglob("*")):
        entry.chmod(0o755 if entry.is_dir() else 0o644)


def test_other_modes_are_refused(path: Path) -> None:
    kc.create_table(path, SCHEMA, "k").close()
    with pytest.raises(kc.InvalidArgument, match='mode is "r", "rw" or "auto", not \'w\''):
        kc.open_table(path, "w")
