"""What the row path leaves to the general path, and what both refuse with the same error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.table.read import points
from tests.support.cases.row_tables import make
from tests.support.clock import ManualClock
from tests.support.inside import engine_of, tablet_of


@pytest.mark.parametrize(
    "key",
    [
        None,
        (),
        ("a",),
        ("a", 1, 2),
        ("a", None),
        ("a", "b"),
        ("a", 1.0),
        {"k0": "a"},
        {"k0": "a", "x": 1},
        ["a", 1],
        "a",
        (b"a", 1),
        ("a", 2**63),
    ],
)
def test_a_bad_key_is_the_general_paths_to_refuse(tmp_path: Path, key: Any) -> None:
    with make(tmp_path / "t", ("string", "int64"), ManualClock()) as table:
        table.insert([{"k0": "a", "k1": 1, "need": 1}])
        outcomes: list[Any] = []

        def general(k: Any) -> Any:
            engine = engine_of(table)
            return points._get_general(engine, engine.schema, k, engine.schema.columns, table.timestamp)

        for read in (
            table.get,
            general,
        ):
            try:
                outcomes.append((None, read(key)))
            except kc.KuduError as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]


def test_a_reader_refuses_writes_and_a_closed_table_everything(tmp_path: Path) -> None:
    row = {"k0": "a", "k1": 1, "need": 1}
    table = make(tmp_path / "t", ("string", "int64"), ManualClock())
    table.insert([row])
    table.close()
    for call in (
        lambda: table.get(("a", 1)),
        lambda: table.get_many([("a", 1)]),
        lambda: table.insert([row]),
        lambda: table.delete([{"k0": "a", "k1": 1}]),
    ):
        with pytest.raises(kc.Closed):
            call()
    with kc.open_table(tmp_path / "t") as reader:
        assert reader.get(("a", 1), ["need"]) == {"need": 1}
        with pytest.raises(kc.ReadOnly):
            reader.insert([row])


def test_after_a_fork_the_row_path_raises(tmp_path: Path) -> None:
    row = {"k0": "a", "k1": 1, "need": 1}
    with make(tmp_path / "t", ("string", "int64"), ManualClock()) as table:
        table.insert([row])
        table.flush()
        assert table.get(("a", 1)) is not None
        with tablet_of(table).mutex:  # held in the child by nobody
            child = os.fork()
            if child == 0:
                outcome = 1
                try:
                    for call in (lambda: table.get(("a", 1)), lambda: table.update([{**row, "need": 2}])):
                        with pytest.raises(kc.Closed):
                            call()
                    outcome = 0
                finally:
                    os._exit(outcome)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert table.get(("a", 1), ["need"]) == {"need": 1}


@pytest.mark.parametrize("columns", [None, ["need"]])
def test_a_get_whose_snapshot_falls_behind_the_horizon_reads_again(
    tmp_path: Path, columns: list[str] | None
) -> None:
    """An operation that drops history raises the floor between the choice of a snapshot and the view."""
    with make(tmp_path / "t", ("string", "int64"), ManualClock()) as table:
        first = table.insert([{"k0": "a", "k1": 1, "need": 1}]).timestamp
        engine = engine_of(table)
        usual = engine.tablets
        steps: list[int] = []

        class Tablets(list[Any]):
            """The moment after the snapshot was chosen."""

            partitions = usual.partitions

            @property
            def only(self) -> Any:
                if not steps:
                    steps.append(1)
                    engine.tablets = usual
                    table.update([{"k0": "a", "k1": 1, "need": 2}])
                    engine.pins.floor = table.timestamp
                return usual.only

        engine.tablets = Tablets(usual)
        row = table.get(("a", 1), columns)
        assert row is not None and row["need"] == 2
        assert steps
        for call in (table.get, table.get_many):
            key: Any = ("a", 1) if call == table.get else [("a", 1)]
            with pytest.raises(kc.SnapshotTooOld):
                call(key, at=first)


def test_a_damaged_page_is_the_same_corruption_on_both_paths(tmp_path: Path) -> None:
    with make(tmp_path / "t", ("string", "int64"), ManualClock()) as table:
        table.insert([{"k0": f"host-{i % 5}", "k1": i, "need": i} for i in range(500)])
        table.flush()
        table.update([{"k0": "host-1", "k1": 1, "need": 9}])
        table.flush()
    for kind in ("rows", "delta"):
        path = next((tmp_path / "t" / "tablets").rglob(f"*.{kind}"))
        whole = path.read_bytes()
        answers = {"right": 0, "corrupt": 0}
        for at in range(40, len(whole) - 24, max(1, len(whole) // 40)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            outcomes: list[Any] = []
            for fast in (True, False):
                try:
                    with kc.open_table(tmp_path / "t") as table:
                        engine = engine_of(table)
                        if fast:
                            outcomes.append(table.get(("host-1", 1)))
                        else:
                            outcomes.append(
                                points._get_general(
                                    engine,
                                    engine.schema,
                                    ("host-1", 1),
                                    engine.schema.columns,
                                    table.timestamp,
                                )
                            )
                except kc.Corruption as error:
                    outcomes.append((error.path, "corrupt"))
            if all(isinstance(o, dict) for o in outcomes):
                assert outcomes[0] == outcomes[1] and outcomes[0]["need"] == 9
                answers["right"] += 1
            else:
                # One of the two may need a piece of the file that the other does not read.
                assert all(isinstance(o, tuple) or o["need"] == 9 for o in outcomes)
                assert {o[0] for o in outcomes if isinstance(o, tuple)} == {str(path)}
                answers["corrupt"] += 1
        path.write_bytes(whole)
        assert answers["corrupt"], answers
