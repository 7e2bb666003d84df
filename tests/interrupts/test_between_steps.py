"""Interrupts between two steps: what a signal handler raises right after a step has done its work."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import kudu_core as kc
from tests.support.fs.slow import PATH, Disk, create, reopen, rows
from tests.support.inside import log_of, tablet_of


class Interrupting:
    """An object whose method ``name`` is cut off right after its work."""

    def __init__(self, inner: Any, name: str) -> None:
        self._inner, self._name = inner, name

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if name != self._name:
            return real

        def cut(*arguments: Any) -> None:
            real(*arguments)
            raise KeyboardInterrupt

        return cut


@pytest.mark.parametrize("data", [rows(0, 2), [{"k": 1, "a": 1, "s": "x"}], rows(0, 9)])
def test_w6_an_interrupt_after_the_append_poisons(disk: Disk, data: Any) -> None:
    """Else the record is in the log and in no store, and every later call waits for it."""
    table = create(disk, ingest_threshold_rows=5)
    log = log_of(table)
    log.append = Interrupting(log, "append").append  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        table.insert(data)
    with pytest.raises(kc.Poisoned):
        table.insert(rows(20, 21))
    table.close()
    assert reopen(disk).count() == len(data)


def test_an_interrupt_after_the_tree_is_filled_doubles_no_row(disk: Disk) -> None:
    table = create(disk)
    table.insert(rows(0, 50))
    memory = tablet_of(table).view.active
    tree = memory._tree
    memory._tree = Interrupting(tree, "insert_sorted")  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        table.scan(order="key").to_table()
    memory._tree = tree
    assert table.scan(["k"], order="key").to_table()["k"].to_pylist() == list(range(50))


def test_e2_an_interrupt_between_edit_and_view_poisons(disk: Disk) -> None:
    """Else the next flush writes the same rows a second time."""
    table = create(disk)
    table.insert(rows(0, 50))
    tablet = tablet_of(table)
    assert tablet.manifest is not None
    tablet.manifest.append = Interrupting(tablet.manifest, "append").append  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        table.flush()
    with pytest.raises(kc.Poisoned):
        table.flush()
    table.close()
    assert reopen(disk).count() == 50


def test_an_interrupt_at_the_end_of_open_leaves_no_thread(disk: Disk) -> None:
    """Protocol O8: maintenance starts when nothing is left that could fail."""
    create(disk).close()
    before = set(threading.enumerate())

    def listener(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kc.open_table(PATH, "rw", options={"maintenance": "background"}, listener=listener, _fs=disk)
    begun = set(threading.enumerate()) - before
    assert not [t for t in begun if t.name == "kudu-core-flush"]
    reopen(disk).close()
