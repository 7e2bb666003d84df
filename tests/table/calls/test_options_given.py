"""What is named wins: an option that a caller gives is in force, also where it is the class's default.

A table that is stored with one durability is opened with another in every way there is, and its fsyncs
are counted.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.errors import InvalidArgument
from kudu_core.options import _CHOICES, _RANGES, DEFAULTS, NAMES, Options
from tests.support.fs.faulty import FaultyFileSystem
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import log_of
from tests.support.tables import SCHEMA

WRITES = 10
DURABILITIES = ("sync", "group", "none")
QUICK = {"maintenance": "manual", "group_interval_s": 0.001}


def another(name: str) -> Any:
    if name in _CHOICES:
        return next(choice for choice in _CHOICES[name] if choice != DEFAULTS[name])
    low, high = _RANGES[name]
    return low if low != DEFAULTS[name] else high


ANOTHER = Options(**{name: another(name) for name in NAMES}).to_json()
"""Of every option a value that is not the default."""

Given = Options | Mapping[str, Any]

WAYS: dict[str, Callable[[dict[str, Any]], Given]] = {
    "Options(...)": lambda named: Options(**named),
    "mapping": lambda named: dict(named),
    "replace": lambda named: Options().replace(**named),
    "replace one that says otherwise": lambda named: Options(durability="group").replace(**named),
    "dataclasses.replace": lambda named: dataclasses.replace(Options(), **named),
    "asdict": lambda named: dataclasses.asdict(Options(**named)),
    "from_json": lambda named: Options.from_json(json.loads(json.dumps(named))),
    "pickle": lambda named: pickle.loads(pickle.dumps(Options(**named))),
    "copy": lambda named: copy.copy(Options(**named)),
    "deepcopy": lambda named: copy.deepcopy(Options(**named)),
    "repr": lambda named: eval(repr(Options(**named))),
    "overridden": lambda named: Options().overridden(Options(**named)),
    "changed otherwise": lambda named: dataclasses.replace(Options(**named), flush_age_s=5),
}


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem(MemoryFileSystem(), keep_log=True)


def make(fs: FaultyFileSystem, options: Given | None, **more: Any) -> kc.Table:
    return kc.create_table("/t", SCHEMA, "k", options=options, _fs=fs, **more)


def check_fsyncs(fs: FaultyFileSystem, table: kc.Table, durability: str) -> None:
    """``WRITES`` calls; then how often the log was synced is what the durability says."""
    assert table.options.durability == durability
    table.delete(where=pc.field("k") >= 0)  # so that each of the calls has something to write
    log = log_of(table)
    log.wait_durable(log.last_ts)
    before, seen = log.fsyncs, log_syncs(fs)
    for k in range(WRITES):
        told = table.upsert({"k": [k], "a": [before]})
    if durability == "sync":
        assert log.fsyncs - before == log_syncs(fs) - seen == WRITES
    elif durability == "group":
        deadline = time.monotonic() + 120
        while log.durable_ts < told.timestamp:
            assert time.monotonic() < deadline, "nobody has synced the log"
            time.sleep(0.001)
        assert 1 <= log.fsyncs - before <= WRITES
    else:
        assert log.durable_ts < told.timestamp
        assert log.fsyncs - before == log_syncs(fs) - seen == 0


def log_syncs(fs: FaultyFileSystem) -> int:
    """fsyncs of segments of the log, counted by the file system."""
    return sum(call.op == "sync" and "/wal/" in call.path and call.path.endswith(".log") for call in fs.log)


@pytest.mark.parametrize("asked", DURABILITIES)
@pytest.mark.parametrize("stored", DURABILITIES)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_asked_of_open_table_is_what_is_synced(
    fs: FaultyFileSystem, way: str, stored: str, asked: str
) -> None:
    make(fs, {**QUICK, "durability": stored}).close()
    with kc.open_table("/t", "rw", options=WAYS[way]({"durability": asked}), _fs=fs) as table:
        check_fsyncs(fs, table, asked)
        assert table.options.maintenance == "manual", "what was not named is as stored"


@pytest.mark.parametrize("asked", DURABILITIES)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_asked_of_create_table_is_stored_and_synced(
    fs: FaultyFileSystem, way: str, asked: str
) -> None:
    with make(fs, WAYS[way]({**QUICK, "durability": asked})) as table:
        check_fsyncs(fs, table, asked)
    with kc.open_table("/t", "rw", _fs=fs) as table:
        check_fsyncs(fs, table, asked)


@pytest.mark.parametrize("asked", DURABILITIES)
@pytest.mark.parametrize("stored", DURABILITIES)
def test_a_table_that_exists_is_opened_as_asked(fs: FaultyFileSystem, stored: str, asked: str) -> None:
    make(fs, {**QUICK, "durability": stored}, exist_ok=True).close()
    with make(fs, Options(durability=asked), exist_ok=True) as table:
        check_fsyncs(fs, table, asked)
    with make(fs, None, exist_ok=True) as table:
        check_fsyncs(fs, table, stored)
    with kc.open_table("/t", _fs=fs) as reader:
        assert reader.options.durability == stored


@pytest.mark.parametrize("stored", DURABILITIES)
@pytest.mark.parametrize("nothing", [None, {}, Options(), Options(flush_age_s=9), {"flush_age_s": 9}])
def test_what_is_not_asked_stays_as_stored(fs: FaultyFileSystem, stored: str, nothing: Given | None) -> None:
    make(fs, {**QUICK, "durability": stored}).close()
    with kc.open_table("/t", "rw", options=nothing, _fs=fs) as table:
        check_fsyncs(fs, table, stored)


@pytest.mark.parametrize("stored", DURABILITIES)
def test_a_restored_table_is_as_durable_as_the_one_that_was_saved(fs: FaultyFileSystem, stored: str) -> None:
    with make(fs, {**QUICK, "durability": stored}) as table:
        table.upsert({"k": [1]})
        table.backup("/saved")
    with kc.restore("/saved", "/back", _fs=fs) as back:
        check_fsyncs(fs, back, stored)


@pytest.mark.parametrize("asked", DURABILITIES)
def test_the_options_of_one_table_are_in_force_in_another(fs: FaultyFileSystem, asked: str) -> None:
    make(fs, {**QUICK, "durability": asked}).close()
    with kc.open_table("/t", _fs=fs) as reader:
        options = reader.options
    kc.create_table("/u", SCHEMA, "k", options=ANOTHER | {"maintenance": "manual"}, _fs=fs).close()
    with kc.open_table("/u", "rw", options=options, _fs=fs) as table:
        assert table.options == options
        check_fsyncs(fs, table, asked)


def test_of_every_option_there_is_another_value() -> None:
    assert set(ANOTHER) == set(NAMES) and all(ANOTHER[name] != DEFAULTS[name] for name in NAMES)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_a_default_that_is_named_wins_over_what_is_stored(name: str, way: str) -> None:
    stored = Options(**ANOTHER)
    given = WAYS[way]({name: DEFAULTS[name]})
    if way == "changed otherwise" and name == "flush_age_s":
        given = dataclasses.replace(Options(flush_age_s=5), flush_age_s=DEFAULTS[name])
    now = stored.overridden(given)
    assert getattr(now, name) == DEFAULTS[name]
    others = set(NAMES) - {name} - ({"flush_age_s"} if way == "changed otherwise" else set())
    if way == "replace one that says otherwise":
        others -= {"durability"}
    assert all(getattr(now, n) == ANOTHER[n] for n in others), "what was not named is as stored"


def test_a_reader_that_looks_again_keeps_what_was_asked(fs: FaultyFileSystem) -> None:
    with (
        make(fs, {"scan_threads": 7}) as table,
        kc.open_table("/t", options=Options(scan_threads=None), _fs=fs) as reader,
    ):
        table.upsert({"k": [1]})
        reader.refresh()
        assert reader.options.scan_threads is None and table.options.scan_threads == 7


def test_options_say_what_was_given() -> None:
    assert repr(Options()) == "Options()"
    assert repr(Options(scan_threads=2, durability="sync")) == "Options(durability='sync', scan_threads=2)"
    assert Options(durability="sync") == Options(), "equal are those with equal values"
    assert hash(Options(durability="sync")) == hash(Options())
    assert Options(durability="sync").given == {"durability"}
    assert Options.from_json(Options().to_json()).given == set(NAMES)
    assert "given" not in Options().to_json()
    assert list(inspect.signature(Options).parameters) == list(NAMES)
    assert inspect.signature(Options).parameters["flush_age_s"].default == 120.0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Options(durabilty="sync"),  # type: ignore[call-arg]
        lambda: Options(given=frozenset({"nobody"})),
        lambda: Options(given=["durability"]),  # type: ignore[arg-type]
        lambda: Options(scan_threads=10**400),
        lambda: Options(scan_threads=10**5000),
        lambda: Options(flush_age_s=float("inf")),
        lambda: Options(durability=["sync"]),  # type: ignore[arg-type]
        lambda: Options().overridden("sync"),  # type: ignore[arg-type]
        lambda: Options().overridden({1: 2}),  # type: ignore[dict-item]
        lambda: Options().overridden([("durability", "sync")]),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_option_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument, match=r"option|given|scan_threads|flush_age_s|durability"):
        wrong()
