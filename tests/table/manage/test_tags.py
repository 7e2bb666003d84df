"""Tags: named moments whose history no writer drops, and that every reader finds."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.common.format.envelope import HEADER, Envelope
from kudu_core.errors import Corruption
from kudu_core.table.stored.table_state import ENVELOPE, IN_STORE, parse_state, read_state
from kudu_core.table.stored.tags import MAX_TAG_BYTES, tags_from_json
from kudu_core.table.write.whole import tagging
from tests.support.inside import engine_of
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created, opened
from tests.support.tables import Make
from tests.table.manage.worlds import PLACES, World, found


@pytest.mark.parametrize("place", PLACES)
def test_their_history_stays(place: str, tmp_path: Path, seed: int) -> None:
    """Through merges, collections, a truncation and other writers, while all history else goes."""
    rng = random.Random(seed)
    world = World(place, tmp_path, history_retention_s=0, file_grace_s=0)
    tags: dict[str, Any] = {}
    for number in range(4):
        for _ in range(3):
            world.write(rng)
            world.table.flush()
            world.write(rng, range(30), 30)
        if number == 1:
            world.table.truncate()
            world.rows = {}
        at = world.table.tag(f"tag {number}")
        tags[f"tag {number}"] = world.rows
        world.write(rng)
        world.table.flush()
        world.table.compact(full=True)
        world.table.gc()
        if number % 2:
            world.reopen()
        with kc.open_table(world.path, **world.how) as reader:
            for table in (world.table, reader):
                assert list(table.tags()) == list(tags)
                for name, rows in tags.items():
                    assert found(table, name) == rows == found(table, table.tags()[name])
                    with table.snapshot(name) as snapshot:
                        assert snapshot.scan().count() == len(rows)
    world.table.verify()
    assert found(world.table, "tag 0") == tags["tag 0"]
    feed = world.table.changes("tag 0", "tag 3", net=True).to_table()
    assert feed.num_rows == sum(
        tags["tag 0"].get(k) != tags["tag 3"].get(k) for k in tags["tag 0"].keys() | tags["tag 3"].keys()
    )
    world.table.restore_to("tag 2")
    assert found(world.table) == tags["tag 2"]
    for name in list(tags):
        world.table.untag(name)
    world.write(rng)
    world.table.flush()
    world.table.compact(full=True)
    world.table.gc()
    with pytest.raises(kc.SnapshotTooOld):
        world.table.count(at=at)
    world.reopen()
    assert world.table.tags() == {}
    world.table.close()


def test_a_moment_of_the_past_and_one_without_a_record(make: Make) -> None:
    table = make(history_retention_s=0)
    assert table.tag("empty") == 0
    first = table.insert({"k": [1]}).timestamp
    second = table.insert({"k": [2]}).timestamp
    assert table.tag("first", at=first) == first and table.tag("again", at="first") == first
    assert table.tag("between", at=second - 1) == second - 1
    assert table.tag("now", at=datetime.now(UTC)) == second, "the last record's, whatever the clock says"
    assert table.tag("now") == second, "the same once more is nothing new"
    assert [table.count(at=name) for name in table.tags()] == [0, 1, 1, 1, 2]
    with table.snapshot() as snapshot:
        table.insert({"k": [3]})
        assert second <= table.tag("held", at=snapshot) < table.timestamp
    assert table.count(at="held") == 2


def test_a_tag_is_durable_before_the_call_returns(make: Make, path: Path) -> None:
    table = make(durability="none")
    table.insert({"k": [1]})
    at = table.tag("now")
    assert engine_of(table).log.durable_ts >= at
    assert read_state(engine_of(table).fs, f"{path}/TABLE").tags == {"now": at}


def test_where_it_fails_the_time_stays_pinned(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be there all the same, as where a store has not answered."""
    table = make(history_retention_s=0)
    at = table.insert({"k": [1, 2]}).timestamp

    def failing(*_: object) -> None:
        raise OSError(5, "no answer")

    monkeypatch.setattr(tagging, "_install", failing)
    with pytest.raises(OSError, match="no answer"):
        table.tag("now")
    table.delete([1])
    table.flush()
    table.compact(full=True)
    assert table.count(at=at) == 2 and table.tags() == {}


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "a\0", "\ud800", "x" * 256, 7, None])
def test_what_is_no_name(make: Make, name: Any) -> None:
    table = make()
    with pytest.raises(kc.InvalidArgument, match="no name of a tag"):
        table.tag(name)
    with pytest.raises(kc.InvalidArgument, match="there is no tag"):
        table.untag(name)
    assert table.tags() == {}


def test_what_is_refused(make: Make, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(history_retention_s=0)
    old = table.insert({"k": [1, 2]}).timestamp
    table.tag("ä" * (MAX_TAG_BYTES // 2))
    table.untag("ä" * (MAX_TAG_BYTES // 2))
    table.delete([1])
    table.flush()
    table.compact(full=True)
    with pytest.raises(kc.SnapshotTooOld):
        table.tag("old", at=old)
    table.tag("one")
    table.insert({"k": [7]})
    with pytest.raises(kc.InvalidArgument, match=r"there is a tag 'one', of .* untag it"):
        table.tag("one")
    with pytest.raises(kc.InvalidArgument, match="there is no tag 'two'; there is 'one'"):
        table.untag("two")
    with pytest.raises(kc.InvalidArgument, match=r"there is no tag '2026-01-01'.*aware datetime"):
        table.scan(at="2026-01-01")
    monkeypatch.setattr(tagging, "MAX_TAGS", 1)
    with pytest.raises(kc.NotSupported, match="untag some"):
        table.tag("two")
    with kc.open_table(path) as reader:
        with pytest.raises(kc.ReadOnly):
            reader.tag("x")
        table.untag("one")
        assert list(reader.tags()) == ["one"]
        reader.refresh()
        assert reader.tags() == {}
        with pytest.raises(kc.InvalidArgument, match=r"refresh\(\) shows"):
            reader.count(at="one")


def test_backups_carry_none(make: Make, tmp_path: Path) -> None:
    table = make()
    table.insert({"k": [1]})
    table.tag("now")
    table.backup(tmp_path / "backups")
    with kc.restore(tmp_path / "backups", tmp_path / "new") as restored:
        assert restored.tags() == {}


def test_a_reader_of_a_store_sees_a_new_tag_at_once() -> None:
    store = MemoryObjectStore()
    with created(store) as table:
        at = table.insert({"k": [1], "v": [1]}).timestamp
        with opened(store) as reader:
            table.tag("now")
            reader.refresh()
            assert reader.tags() == {"now": at} and reader.count(at="now") == 1


# ---- as stored ----


def test_a_library_that_knows_no_tags_refuses_the_table(make: Make, path: Path) -> None:
    """It would forget them.  And a TABLE without tags is what it was before there were any."""
    table = make()
    table.insert({"k": [1]})
    table.tag("now")
    table.close()
    data = (path / "TABLE").read_bytes()
    before = Envelope(magic=ENVELOPE.magic, version=1, other="")
    with pytest.raises(kc.NotSupported, match="flags 1"):
        before.body("TABLE", data)
    with kc.open_table(path, "rw") as again:
        again.untag("now")
    data = (path / "TABLE").read_bytes()
    assert b"tags" not in before.body("TABLE", data)
    assert parse_state(data, "TABLE").tags == {}


@pytest.mark.parametrize("in_store", [True, False])
def test_other_flags_are_refused(in_store: bool) -> None:
    envelope = IN_STORE if in_store else ENVELOPE
    with pytest.raises(kc.NotSupported, match="flags 33"):
        envelope.body("TABLE", envelope.around(b"{}", 33))
    assert envelope.body("TABLE", envelope.around(b"{}", 1)) == b"{}"
    assert HEADER.unpack_from(envelope.around(b"{}"))[2] == 0


@pytest.mark.parametrize(
    "value", [5, [["a", 1], ["a", 2]], [["", 1]], [["a", -1]], [["a", 2**64]], [["a"]], [[" a", 1]], [[1, 1]]]
)
def test_broken_tags(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        tags_from_json(value)


def test_verify_names_a_tag_without_its_history(make: Make, path: Path) -> None:
    table = make(history_retention_s=0)
    table.insert({"k": [1, 2]})
    table.delete([1])
    table.flush()
    table.compact(full=True)
    table.close()
    fs = kc.open_table(path)
    state = read_state(engine_of(fs).fs, f"{path}/TABLE")
    (path / "TABLE").write_bytes(replace(state, tags={"lost": 5}).to_bytes())
    with pytest.raises(Corruption, match="the tag 'lost' is of 5"):
        fs.verify()
    fs.close()
