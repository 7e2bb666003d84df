"""How long a table knows a writer that names its writes: by age, by number, and over crashes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.format.members import LIMIT
from kudu_core.common.idempotence import writers
from kudu_core.common.idempotence.fingerprint import MAX_ROWS, NO_ROWS, Fingerprint
from kudu_core.common.idempotence.writers import AppliedWrite, outdated
from kudu_core.events import TokensDropped
from kudu_core.table.opened import writers as opened_writers
from kudu_core.table.stored import table_state as states
from kudu_core.table.stored.table_state import read_state
from tests.support.clock import ManualClock
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import applied_writes_of, engine_of

SCHEMA = pa.schema([("k", pa.int64())])
DAY_S = 86_400.0


@pytest.fixture
def where() -> dict[str, Any]:
    fs = MemoryFileSystem()
    fs.mkdir("/d")
    fs.sync_dir("/")
    return {"path": "/d/t", "_fs": fs, "_clock": ManualClock()}


def create(where: dict[str, Any], **options: Any) -> kc.Table:
    return kc.create_table(
        schema=SCHEMA, primary_key="k", options={"maintenance": "manual"} | options, **where
    )


def put(table: kc.Table, key: int, app_id: str = "app", version: int = 1, **more: Any) -> Any:
    return table.upsert({"k": [key]}, txn=(app_id, version), **more)


def crashed(where: dict[str, Any], keep: str = "none") -> dict[str, Any]:
    return {**where, "_fs": where["_fs"].crash_clone(keep=keep)}


def known(where: dict[str, Any]) -> dict[str, int]:
    """What a reader sees."""
    with kc.open_table(**where) as reader:
        return {app_id: token.version for app_id, token in applied_writes_of(reader).items()}


def test_a_token_goes_by_its_age_at_a_close(where: dict[str, Any]) -> None:
    clock = where["_clock"]
    with create(where) as table:
        put(table, 1, "old")
        clock.advance(89 * DAY_S)
        put(table, 2, "new")
    assert known(where) == {"old": 1, "new": 1}
    clock.advance(1.5 * DAY_S)
    with kc.open_table(mode="rw", **where) as table:
        assert put(table, 1, "old").deduplicated, "TABLE is written at the close"
    assert known(where) == {"new": 1}
    with kc.open_table(mode="rw", **where) as table:
        assert table.metrics()["tokens"] == 1
        assert not put(table, 1, "old").deduplicated, "applied again"
    with kc.open_table(mode="rw", options={"token_retention_s": None}, **where) as table:
        clock.advance(1000 * DAY_S)
    assert known(where) == {"new": 1, "old": 1}


@pytest.mark.usefixtures("small_segments")
def test_a_token_goes_when_the_log_is_truncated_and_does_not_come_back(where: dict[str, Any]) -> None:
    """Protocol K4: its record may be in the log still, and replay leaves it out, for a reader as well."""
    told: list[TokensDropped] = []
    table = create(where, token_retention_s=1.0)
    table.close()
    table = kc.open_table(
        mode="rw", listener=lambda e: told.append(e) if isinstance(e, TokensDropped) else None, **where
    )
    put(table, 0, "old")
    for key in range(1, 400):
        table.upsert({"k": [key]})
    where["_clock"].advance(10)
    put(table, 500, "new")
    table.flush()
    put(table, 501, "newest")
    assert [event.tokens for event in told] == [1]
    assert set(applied_writes_of(table)) == {"new", "newest"} and table.metrics()["tokens_dropped"] == 1
    state = read_state(where["_fs"], "/d/t/TABLE")
    assert set(state.tokens) == {"new"} and state.applied_ts >= applied_writes_of(table)["new"].ts
    after = crashed(where, "all")
    assert known(after) == {"new": 1, "newest": 1}
    with kc.open_table(mode="rw", **after) as again:
        assert set(applied_writes_of(again)) == {"new", "newest"}
    table.close()


def test_records_that_table_has_seen_bring_no_token_back(where: dict[str, Any]) -> None:
    """The log is whole, TABLE has dropped one of its tokens: reader and writer take TABLE's word."""
    table = create(where, token_retention_s=5.0)
    put(table, 1, "old")
    where["_clock"].advance(10)
    put(table, 2, "new")
    assert engine_of(table).writers.save(engine_of(table).committed_ts) == 1
    put(table, 3, "newest")
    after = crashed(where)
    assert known(after) == {"new": 1, "newest": 1}
    with kc.open_table(mode="rw", **after) as again:
        assert set(applied_writes_of(again)) == {"new", "newest"}
        assert [r["k"] for r in again.scan(order="key").to_pylist()] == [1, 2, 3]
    table.close()


def test_no_token_goes_whose_record_replay_would_read() -> None:
    tokens = {str(n): AppliedWrite(1, n, (0, 0, 0, 0)) for n in range(10)}
    assert set(outdated(tokens, 5, 1 << 50, 0.0)) == set(map(str, range(6)))
    assert outdated(tokens, 5, 1 << 50, None) == {}


@pytest.mark.parametrize("more", [0, 1])
def test_the_oldest_go_by_number_and_never_the_young(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    monkeypatch.setattr(writers, "MAX_TOKENS", 10)
    monkeypatch.setattr(writers, "TOKENS_DROPPED", 3)
    hour_us = 3_600_000_000
    now_us = 100 * hour_us

    def tokens(ages_hours: list[float]) -> dict[str, AppliedWrite]:
        return {
            str(n): AppliedWrite(1, int(now_us - age * hour_us) << 12, (0, 0, 0, 0), NO_ROWS)
            for n, age in enumerate(ages_hours)
        }

    through = 1 << 63
    at_limit = tokens([*range(2, 12)])
    gone = outdated(at_limit, through, now_us, None, more=more)
    assert set(gone) == ({"9", "8", "7"} if more else set())
    assert set(outdated(tokens([*range(2, 14)]), through, now_us, None)) == {"11", "10", "9", "8", "7"}
    assert set(outdated(tokens([0.5] * 9 + [2, 3]), through, now_us, None)) == {"9", "10"}
    assert outdated(tokens([0.5] * 12), through, now_us, None, more=more) == {}


def test_a_new_writer_is_refused_when_too_many_are_young(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (writers, opened_writers):
        monkeypatch.setattr(module, "MAX_TOKENS", 6)
    monkeypatch.setattr(writers, "TOKENS_DROPPED", 2)
    told: list[Any] = []
    create(where).close()
    with kc.open_table(mode="rw", listener=told.append, **where) as table:
        for n in range(6):
            put(table, n, f"app {n}")
        with pytest.raises(kc.InvalidArgument, match="knows 6 writers by their txn"):
            put(table, 100, "one more")
        assert table.get(100) is None
        assert put(table, 5, "app 5").deduplicated
        assert put(table, 6, "app 5", 2).inserted == 1, "a writer that is known goes on"
        where["_clock"].advance(4000)
        put(table, 7, "app 0", 2)
        assert put(table, 100, "one more").inserted == 1
        assert set(applied_writes_of(table)) == {"app 0", "app 3", "app 4", "app 5", "one more"}
        assert [event.tokens for event in told if isinstance(event, TokensDropped)] == [2]
        after = crashed(where)
    assert set(known(after)) == set(known(where)) == {"app 0", "app 3", "app 4", "app 5", "one more"}


@pytest.mark.parametrize("durability", ["group", "none"])
def test_table_never_knows_a_write_that_a_power_cut_takes_back(
    where: dict[str, Any], durability: str
) -> None:
    """Protocol K3: by a token in TABLE whose record is lost a repetition would be skipped, its rows missing
    for ever."""
    table = create(where, durability=durability, group_interval_s=60.0)
    table.upsert({"k": [1]})
    table.flush()
    through = engine_of(table).committed_ts
    put(table, 2)
    engine_of(table).writers.save(through)
    after = crashed(where)
    with kc.open_table(mode="rw", **after) as again:
        repeated = put(again, 2)
        assert again.get(2) is not None, "the write is there, of the first time or of the second"
        assert repeated.deduplicated, "the log was made durable before TABLE said so"
    table.close()


def test_tokens_written_beside_an_alter_are_all_kept(
    where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ALTER replaces TABLE, with newer tokens, while the older ones wait for the log."""
    table = create(where)
    engine = engine_of(table)
    put(table, 1, "app", 1)
    through = engine.committed_ts
    wait = engine.log.wait_durable
    first = True

    def slowly(ts: int) -> None:
        nonlocal first
        wait(ts)
        if first:
            first = False
            put(table, 2, "app", 2)
            put(table, 3, "other", 1)
            table.alter(add=[kc.Column("v", pa.int64())])

    put(table, 0, "zero", 1)
    monkeypatch.setattr(engine.log, "wait_durable", slowly)
    engine.writers.save(through)
    assert not first
    after = crashed(where)
    assert known(after) == {"app": 2, "other": 1, "zero": 1}
    with kc.open_table(mode="rw", **after) as again:
        for key, app_id, version in ((2, "app", 2), (3, "other", 1), (0, "zero", 1), (1, "app", 1)):
            assert put(again, key, app_id, version).deduplicated
    table.close()


def test_a_write_without_rows_has_its_token_before_an_alter_or_after(where: dict[str, Any]) -> None:
    """Protocol K2: it touches no tablet; still it waits for an ALTER, which writes the tokens down."""
    with create(where) as table:
        engine = engine_of(table)
        held: list[bool] = []
        append = engine.log.append

        def asked(*args: Any, **more: Any) -> int:
            held.append(engine.tablets[0].mutex._is_owned())
            return append(*args, **more)

        engine.log.append = asked  # type: ignore[method-assign]
        table.upsert([], txn=("app", 1))
        table.delete([9], on_missing="ignore", txn=("app", 2))
        assert held == [True, True]


def test_the_tokens_that_a_table_keeps_fit_into_it() -> None:
    """All of the longest, and a third of TABLE is left for what else it says."""
    rows = Fingerprint(MAX_ROWS - 1, (1 << 64) - 1, (1 << 64) - 1)
    largest = LIMIT - 1
    recent = tuple((writers.MAX_VERSION - 1, rows) for _ in range(writers.RECENT_VERSIONS))
    source = "\0" * writers.MAX_SOURCE_BYTES  # six bytes each in JSON
    token = AppliedWrite(writers.MAX_VERSION - 1, largest, (largest,) * 4, rows, source, recent)
    assert AppliedWrite.from_json(json.loads(json.dumps(token.to_json()))) == token
    name = base64.b64encode(bytes(writers.MAX_APP_ID_BYTES))
    each = len(name) + len(json.dumps(token.to_json(), separators=(",", ":"))) + len('"":,')
    assert each * (writers.MAX_TOKENS + 100) < states.MAX_BYTES * 2 // 3
