"""Broken values in predicates, and values of ``set`` that do not fit: refused, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.cases.foreign import HOSTILE, Hostile
from tests.support.hostile.doors import OPTIONS, make, state, written_and_opened_again


def _literals() -> Iterator[tuple[str, Callable[[], tuple[Any, Callable[[], None]]]]]:
    for case in HOSTILE:
        if case.column != "string" or "view" in case.what:
            continue  # pyarrow looks for no views in lists

        def listed(case: Hostile = case) -> tuple[Any, Callable[[], None]]:
            array, spoil = case.make()
            spoil()
            return pc.field("v").isin(array), spoil

        def filtered(case: Hostile = case) -> tuple[Any, Callable[[], None]]:
            array, spoil = case.make()
            spoil()
            return [("v", "in", array)], spoil

        if case.what.startswith(("string with", "large_string with", "string whose rows cut")):
            # What an expression holds can be looked at only when pyarrow has written it out, and pyarrow
            # itself does not survive to write out a list whose layout is broken.
            yield f"isin, {case.what}", listed
        yield f"filter, {case.what}", filtered


PREDICATE_DOORS: dict[str, Callable[[kc.Table, Any], object]] = {
    "scan": lambda t, where: t.scan(where=where).to_table(),
    "count": lambda t, where: t.count(where),
    "delete": lambda t, where: t.delete(where=where),
    "update": lambda t, where: t.update(where=where, set={"v": "x"}),
    "update, if": lambda t, where: t.update([{"k": "a", "v": "x"}], if_=where),
    "delete, if": lambda t, where: t.delete(["a"], if_=where),
    "insert, if": lambda t, where: t.insert([{"k": "n", "v": "x"}], if_=where),
    "merge": lambda t, where: t.merge([{"k": "a"}]).when_matched_delete(where=where).execute(),
    "merge, by source": lambda t, where: (
        t.merge([{"k": "n"}]).when_not_matched_by_source_delete(where=where).execute()
    ),
    "changes": lambda t, where: list(t.changes(where=where)),
    "scan_tokens": lambda t, where: t.scan_tokens(where=where),
    "change_tokens": lambda t, where: t.change_tokens(None, net=True, where=where),
    "snapshot": lambda t, where: t.snapshot().scan(where=where).count(),
    "dataset": lambda t, where: t.to_dataset().count_rows(where),
}


def test_broken_values_in_predicates(tmp_path: Path) -> None:
    columns = [kc.Column("k", "string"), kc.Column("v", "string")]
    with kc.create_table(tmp_path / "t", columns, "k", options=OPTIONS) as table:
        table.insert([{"k": "a", "v": "b"}])
        before = state(table)
        for what, literal in _literals():
            for name, door in PREDICATE_DOORS.items():
                where, _ = literal()
                if name == "dataset" and not isinstance(where, pc.Expression):
                    continue
                with pytest.raises(kc.InvalidArgument):
                    door(table, where)
                    pytest.fail(f"{name}: {what}")
        broken = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
        )[0]
        for where in (pc.field("v") == broken, [("v", "==", broken)]):
            for name, door in PREDICATE_DOORS.items():
                if name != "dataset" or isinstance(where, pc.Expression):
                    with pytest.raises(kc.InvalidArgument):
                        door(table, where)
        for key in ("a", "nobody"):
            with pytest.raises(kc.InvalidArgument):
                table.update(where=pc.field("k") == key, set={"v": pc.scalar(broken)})
        with pytest.raises(kc.InvalidArgument):
            table.update(where=pc.field("k") == "a", set={"v": broken})
        for given in (broken, pc.scalar(broken)):
            with pytest.raises(kc.InvalidArgument):
                table.update({"k": ["a"]}, set={"v": given})
            with pytest.raises(kc.InvalidArgument):
                table.merge({"k": ["n"]}).when_not_matched_by_source_update({"v": given}).execute()
            with pytest.raises(kc.InvalidArgument):
                table.merge({"k": ["n"]}).when_not_matched_insert({"v": given}).execute()
        assert state(table) == before
        table.upsert([{"k": "a", "v": "c"}])
        assert table.get("a") == {"k": "a", "v": "c"}


def test_values_of_set_that_do_not_fit(tmp_path: Path) -> None:
    """Literals, and expressions over the old row whose outcome no row may have."""
    with make(tmp_path / "t") as table:
        before = state(table)
        everything = pc.field("k") >= 0
        for set_ in (
            {"int8": 1000},
            {"int64": 10**30},
            {"string": b"\xff"},
            {"decimal128(5,2)": 10**9},
            {"decimal128(5,2)": pc.field("int64") * 10**6},
            {"int8": pc.field("int64") + 1000},
            {"string": pc.field("binary")},
            {"float32": pc.field("float64") / 3},
            {"date32": 2**40},
            {"bool": "x"},
        ):
            with pytest.raises(kc.InvalidArgument):
                table.update(where=everything, set=set_)
            with pytest.raises(kc.InvalidArgument):
                table.update({"k": [0, 1, 2]}, set=set_)
            with pytest.raises(kc.InvalidArgument):
                table.merge({"k": [9]}).when_not_matched_by_source_update(set_).execute()
            assert state(table) == before, set_
        written_and_opened_again(table, 3).close()
