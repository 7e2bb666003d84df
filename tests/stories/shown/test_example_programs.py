"""Programs of ``examples/`` that need neither Spark nor a server: they run small, and what they say is so."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kudu_core as kc
from tests.support.processes import ROOT

EXAMPLES = ROOT / "examples"
Example = Callable[..., str]


def program(name: str) -> Any:
    """The module; what it starts by ``spawn`` would not find it."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """``example(name, *arguments)``: what the program prints."""

    def run(name: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        program(name).main()
        return capsys.readouterr().out

    return run


# ---- loader ----


def test_each_epoch_has_each_row_once_and_one_state(long: bool) -> None:
    """Labels become 1 less while the first epoch runs: that one learns the old ones, the last the new."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    sized = ["--rows", "3000", "--batch-rows", "16", "--epochs", "2"]
    for start, workers in [("fork", 3), ("spawn", 1)] if long else [("fork", 3)]:
        told = subprocess.run(
            [sys.executable, EXAMPLES / "loader.py", *sized, "--start", start, "--workers", str(workers)],
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
            check=True,
        ).stdout
        epochs = re.findall(r"([\d,]+) rows in (\d+) shares, .* the labels lie ([+-][\d.]+) off", told)
        assert [rows for rows, _, _ in epochs] == ["3,000", "3,000"], told
        assert all(int(shares) >= workers for _, shares, _ in epochs)
        assert [round(float(off)) for _, _, off in epochs] == [1, 0], told


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside threads, from Python 3.12 on
def test_an_epoch_ends_with_its_workers(tmp_path: Path) -> None:
    """One that dies is an error, not an epoch that is shorter; whoever stops early leaves none behind."""
    loader = program("loader")
    with kc.create_table(tmp_path / "t", loader.SCHEMA, "id") as table:
        table.insert(loader.make_rows(2000, seed=1)[0])
        table.flush()
        batches = loader.Loader(table, ["label"], workers=2, share_rows=500)
        assert sum(batch.num_rows for batch in batches) == 2000
        epoch = iter(batches)
        next(epoch)
        epoch.close()
        assert multiprocessing.active_children() == []
        table.alter(options={"history_retention_s": 0.0})
        table.truncate()
        table.gc()  # the state that the shares are of is gone
        with pytest.raises(RuntimeError, match="a worker of the loader has died"):
            list(batches)
        assert multiprocessing.active_children() == []


# ---- forgetting ----


def test_whoever_is_forgotten_is_in_no_file(tmp_path: Path, example: Example) -> None:
    """The program searches too; here the files are searched after it has ended."""
    sized = ("--people", 60, "--orders", 300, "--forget", 6)
    told = example("gdpr", "--folder", tmp_path, *sized)
    [there] = re.findall(r"the past has them, and so have (\d+) files", told)
    # Of the rows three, two of the logs, two of the backup.
    assert int(there) == 7 and "audit: 0 files" in told, told
    gone, kept = [10 * n for n in range(6)], [n for n in range(60) if n % 10]
    text = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    found = {int(number) for number in re.findall(rb"person-(\d{7})@", text)}
    assert found == set(kept)
    for name in ("people", "orders"):
        [place] = (tmp_path / "backups").glob(f"*/{name}")
        with kc.restore(place, tmp_path / f"{name}-restored") as restored:
            assert set(restored.scan(["person"]).to_table()["person"].to_pylist()) <= set(kept)
    with kc.open_table(tmp_path / "people") as people, kc.open_table(tmp_path / "requests") as requests:
        assert people.scan(["person"], order="key").to_table()["person"].to_pylist() == kept
        asked = requests.scan(order="key").to_pylist()
    assert [row["person"] for row in asked] == gone and all(row["purged_at"] for row in asked)


# ---- changes of a database ----


def changes(lines: list[str]) -> dict[int, dict[str, Any]]:
    """The rows after all lines, in plain Python."""
    rows: dict[int, dict[str, Any]] = {}
    for line in lines:
        told = json.loads(line)
        if told is not None and told["payload"]["op"] == "d":
            del rows[told["payload"]["before"]["id"]]
        elif told is not None:
            rows[told["payload"]["after"]["id"]] = told["payload"]["after"]
    return rows


def made_up(path: Path, count: int) -> list[str]:
    program("cdc").make_events(path, count)
    return path.read_text().splitlines()


def rows_of(table: Path) -> dict[int, dict[str, Any]]:
    with kc.open_table(table) as opened:
        opened.verify()
        schema = opened.schema
        rows = opened.scan().to_table()
    assert schema.field("seen").type == pa.timestamp("us")
    at = schema.get_field_index("seen")
    return {row["id"]: row for row in rows.set_column(at, "seen", rows["seen"].cast("int64")).to_pylist()}


def test_each_change_comes_once_though_the_program_ends_between(tmp_path: Path, example: Example) -> None:
    events, table, position = tmp_path / "e.jsonl", tmp_path / "t", tmp_path / "t.position"
    lines = made_up(events, 900)
    assert "null" in lines and len(changes(lines)) > 100
    run = ("cdc", "--events", events, "--table", table, "--batch", 100)
    example(*run, "--batches", 3)
    assert position.read_text() == "300 300" and rows_of(table) == changes(lines[:300])

    # Killed between the change and the note of it; meanwhile the file has grown, its last line not whole.
    position.write_text("200 300")
    events.write_text("\n".join(lines[:350]) + "\n" + lines[350][:40])
    told = example(*run, "--batch", 1000)
    assert "1 batches had been applied before" in told, told
    assert position.read_text() == "350 350" and rows_of(table) == changes(lines[:350])

    events.write_text("\n".join(lines) + "\n")
    assert "goes on after line 350" in example(*run)
    assert rows_of(table) == changes(lines)
    assert "0 lines" in example(*run)


def test_a_type_that_is_not_known_is_named(tmp_path: Path, example: Example) -> None:
    events = tmp_path / "e.jsonl"
    [line, *_] = made_up(events, 1)
    events.write_text(line.replace('"string"', '"bytes"'))
    with pytest.raises(SystemExit, match=r"column 'name': no type here for Debezium's 'bytes'"):
        example("cdc", "--events", events, "--table", tmp_path / "t")
    assert not (tmp_path / "t").exists()


# ---- features ----


def test_labels_know_only_what_was_known(tmp_path: Path, example: Example) -> None:
    pytest.importorskip("duckdb", reason="duckdb is not installed: the feature store is not tested")
    told = example("features", "--folder", tmp_path, "--users", 50, "--updates", 6, "--labels", 300)
    assert "the last job ran twice: nothing happened" in told
    assert "the join of today is another" in told and "that of trained-1 is as it was" in told
    assert "with the features that the join gives for now" in told, told
    [leaks] = re.findall(r"joined to today's features (\d+) of them", told)
    assert 0 < int(leaks) < 300
    with kc.open_table(tmp_path / "log") as log, kc.open_table(tmp_path / "latest") as latest:
        assert (log.count(), latest.count()) == (300, 50)
        newest: dict[int, dict[str, Any]] = {}
        for row in log.scan(at="trained-1", order="key").to_pylist():
            newest[row["user"]] = row
        assert latest.scan(order="key").to_pylist() == list(newest.values())


def test_features_and_labels_of_ones_own(tmp_path: Path, example: Example) -> None:
    pytest.importorskip("duckdb", reason="duckdb is not installed: the feature store is not tested")
    day = 86_400_000_000
    at = pa.array([day, 3 * day, 2 * day, 9 * day], pa.timestamp("us"))
    features = {"user": ["ann", "ann", "bob", "bob"], "at": at, "score": [0.1, 0.3, 0.2, 0.9]}
    pq.write_table(pa.table(features), tmp_path / "f.parquet")
    when = pa.array([2 * day, 4 * day, day], pa.timestamp("us"))
    labels = {"user": ["ann", "ann", "bob"], "at": when, "label": [True, False, True]}
    pq.write_table(pa.table(labels), tmp_path / "l.parquet")
    files = ("--features", tmp_path / "f.parquet", "--labels-file", tmp_path / "l.parquet")
    told = example("features", *files)
    assert "3 labels joined to what was known then, 1 before anything was" in told
    assert "joined to today's features 2 of them" in told
