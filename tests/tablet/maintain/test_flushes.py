"""What a flush rests on: rows larger than a file, directories and manifests, and the other tablets."""

from __future__ import annotations

import time
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.tablet.flush.memory import flush_memrowset
from kudu_core.tablet.maintain import flush_lane
from kudu_core.tablet.store import manifest
from kudu_core.tablet.store.edits import Edit
from tests.support.fs.faulty import Rule
from tests.support.fs.slow import LATE_S, PATH, SCHEMA, SOON_S, Disk, Thread, create, reopen, rows
from tests.support.inside import flush_lane_of, poison_of, tablet_of, tablets_of


def test_rows_larger_than_a_file_can_be_flushed(disk: Disk) -> None:
    table = create(disk, rowset_target_bytes=64 << 10)
    table.insert({"k": [1, 2, 3], "s": ["y" * (1 << 20)] * 3})
    table.flush()
    assert table.count() == 3


def test_w8_a_failed_fsync_of_a_directory_poisons(disk: Disk) -> None:
    table = create(disk)
    table.insert(rows(0, 5))
    disk.rules = [Rule(ops={"sync_dir"}, path_glob="*/tablets/*")]
    with pytest.raises(OSError, match="Input/output"):
        table.flush()
    with pytest.raises(kc.Poisoned):
        table.flush()
    assert table.count() == 5
    table.close()
    assert reopen(disk).count() == 5


def test_w8_no_fsync_of_a_directory_begins_between_a_failure_and_its_poison(disk: Disk) -> None:
    """The second one may succeed: what it vouches for the first one has lost."""
    table = create(disk)
    tablet = tablet_of(table)
    disk.rules = [Rule(ops={"sync_dir"}, path_glob="*/tablets/*", nth=1)]
    begun: list[bool] = []
    disk.see = lambda call: begun.append(poison_of(table) is not None) if call.op == "sync_dir" else None
    with disk.held(lambda call: call.op == "sync_dir", tablet.sync_directory):
        other = Thread(tablet.sync_directory)
        other.join(SOON_S)
        assert begun == [False] and other.is_alive()
    other.join(LATE_S)
    assert begun == [False, True] and other.answer == [None]
    with pytest.raises(kc.Poisoned):
        table.insert(rows(0, 5))


def test_a_manifest_is_rewritten_beside_its_fsync(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(disk)
    table.insert(rows(0, 5))
    table.flush()
    edits = tablet_of(table).manifest
    assert edits is not None
    edits.append(Edit(next_file=50))
    monkeypatch.setattr(manifest, "REWRITE_BYTES", 0)
    edits._checkpoint_size = 1
    with disk.held(lambda call: call.op == "sync" and call.path.endswith("/MANIFEST"), edits.sync):
        rewriting = Thread(lambda: edits.append(Edit(next_file=51)))
        rewriting.join(SOON_S)
    rewriting.join(LATE_S)
    assert rewriting.answer == [None] and poison_of(table) is None


def test_a_tablet_that_cannot_be_flushed_does_not_hold_up_the_others(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = kc.create_table(
        PATH,
        SCHEMA,
        "k",
        partition_by=kc.HashPartition(["k"], 3),
        options={"maintenance": "manual", "flush_age_s": 0},
        _fs=disk,
    )
    table.insert(rows(0, 40))
    time.sleep(0.001)
    first, *others = tablets_of(table)
    real = flush_memrowset

    def flush(tablet: Any) -> Any:
        if tablet is first:
            raise RuntimeError("broken")
        return real(tablet)

    monkeypatch.setattr(flush_lane, "flush_memrowset", flush)
    flush_lane_of(table).run_due()
    assert [len(t.view.active) for t in others] == [0, 0] and len(first.view.active)
