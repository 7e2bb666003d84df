"""Whoever keeps events keeps no table alive with them."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import kudu_core as kc
from kudu_core.events import Event
from tests.support.inside import engine_of

SCHEMA = [("k", "int64")]


def test_events_hold_no_table(path: Path) -> None:
    heard: list[Event] = []
    options = {"maintenance": "manual"}
    table = kc.create_table(path, SCHEMA, "k", listener=heard.append, options=options)
    table.insert([{"k": 1}], progress=heard.append)
    table.flush()
    table.verify()
    engine = weakref.ref(engine_of(table))
    del table
    gc.collect()
    assert engine() is None
    assert len(heard) > 5
    kc.open_table(path, "rw").close()
