"""What a type checker tells users: mistakes on their lines, and of what is right nothing.

The programs are of users who run ``mypy --strict`` and have pyarrow as it comes, without types of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".mypy_cache" / "users"
"""Between runs: the first one reads all of the package, which takes some seconds."""

CONFIG = """
    [mypy]
    strict = True
    [mypy-pyarrow.*]
    ignore_missing_imports = True
"""

MISTAKES = """
    import pyarrow as pa
    import pyarrow.compute as pc
    import kudu_core as kc

    table = kc.open_table("t", "w")  # mistake
    kc.Options(durability="fast")  # mistake
    kc.Options(maintenance="never")  # mistake
    table.scan(order="desc")  # mistake
    table.stats(by="foo")  # mistake
    table.insert({"k": [1]}, on_conflict="skip")  # mistake
    table.insert({"k": [1]}, on_error="ignore")  # mistake
    table.delete([1], on_missing="raise")  # mistake
    table.upsert([{"k": 1}], on_repeat="ignore")  # mistake
    table.changes(images="before")  # mistake
    table.count(at=1.5)  # mistake
    table.insert(5)  # mistake
    table.upsert(2.5)  # mistake
    table.scan(where=5)  # mistake
    table.update(where=2.5, set={"v": 1})  # mistake
    table.insert({"k": [1]}, wait=False).inserted  # mistake
    table.get(5)["k"]  # mistake
    table.merge([{"k": 1}], on_duplicate="first")  # mistake
    table.merge(5)  # mistake
    table.merge([{"k": 1}]).when_matched(where=5)  # mistake
    table.merge([{"k": 1}]).when_not_matched_by_source_update()  # mistake
    table.merge([{"k": 1}]).when_matched_delete().execute(on_error="skip")  # mistake
    table.upsert([{"k": 1}], if_=2.5)  # mistake
    table.update([{"k": 1}], set=[("n", 1)])  # mistake
    table.modify(1, lambda row: row["n"])  # mistake
    kc.old(5)  # mistake
    with table.batch() as batch:
        batch.get(1)["k"]  # mistake
"""

RIGHT = """
    import pickle
    from collections.abc import Iterator
    from datetime import UTC, datetime

    import pyarrow as pa
    import pyarrow.compute as pc

    import kudu_core as kc


    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"k": [1]})


    with kc.open_table("t", "auto", options=kc.Options(durability="group"), refresh_s=5) as table:
        writes: bool = table.mode == "rw"
        table.insert({"k": [1], "v": [None]}, on_conflict="ignore", on_error="return")
        table.insert([{"k": 1}, {"k": 2}])
        table.insert(pa.table({"k": [1]}))
        table.insert(batches())
        table.insert(table.scan(), txn=("load", 7), on_repeat="skip")
        table.count(at="a tag")
        table.update(where=pc.field("k") > 5, set={"v": 1})
        table.update({"k": [1], "v": [2]}, on_missing="ignore")
        table.delete(where=[("k", ">", 5)])
        table.delete(where="k > 5 AND s LIKE 'a%'")
        table.update(where=kc.expr("k = $k", k=5), set={"v": kc.expr("v + 1")})
        table.sql("DELETE FROM this WHERE k > $k", k=5)
        table.delete([1, 2])
        at: int = table.timestamp
        with table.snapshot(at) as now, table.batch(wait=False) as later:
            table.count(at=now)
            later.delete([1])
        deleted: int = later.ticket.result().deleted
        with table.batch() as batch:
            batch.insert({"k": [1]})
        total: int = batch.result.inserted + 1
        changes: kc.Changes = table.changes(since=at, until=datetime.now(UTC), images="both")
        tokens: list[kc.ChangeToken] = table.change_tokens(None, net=True)
        explained: kc.Explained = table.scan(["k"], [("k", "==", 1)], order="key", limit=5).explain()
        verified: kc.Verified = table.verify()
        partitions: kc.PartitionSchema = table.partitions
        record: kc.Unreplayed | None = table.unreplayed
        inserted: int = table.insert({"k": [1]}, wait=False).result().inserted
        table.stats("tablet")
        report: kc.Report = table.report("t.html")
        data: kc.ReportData = kc.report("t").data
        heights: list[float] = [tablet.height for tablet in data.tablets]
        larger = kc.new("n") > kc.old("n")
        table.upsert([{"k": 1, "n": 2}], if_=larger, on_error="return")
        table.update({"k": [1]}, set={"n": kc.old("n") + 1}, if_=[("n", ">", 1)], wait=False).result().updated
        table.insert({"k": [1]}, if_=kc.new("k") > 0)
        table.delete([1], if_=kc.old("n") == 1, on_missing="ignore")
        merge: kc.Merge = table.merge(pa.table({"k": [1]}), on={"k": "k"})
        merge = merge.when_matched({"n": kc.expr("old.n")}, where="new.n > 1")
        merge = merge.when_matched({"n": 1}, where=larger).when_matched_delete()
        done: kc.MergeResult = merge.when_not_matched_insert().execute(txn=("load", 8))
        clauses: tuple[int, ...] = done.clauses
        table.merge([{"k": 1}], "k", on_duplicate="last", sequence_by="n")
        table.modify(1, lambda row: {"n": 1 if row is None else row["n"] + 1}, tries=3)
        table.modify([1, 2], lambda row: None)
        try:
            with table.batch() as reading:
                there = reading.get(1)
                found: bool = there is not None and bool(there["k"])
                reading.get_many([1, 2], ["k"])
        except kc.Conflict:
            pass
        row = table.get(5, at=at)
        sent = pickle.dumps(table)
"""


def told(tmp_path: Path, **programs: str) -> dict[str, set[int]]:
    """By program, the lines on which mypy finds an error."""
    config = tmp_path / "mypy.ini"
    config.write_text(textwrap.dedent(CONFIG))
    paths = []
    for name, text in programs.items():
        paths.append(tmp_path / f"{name}.py")
        paths[-1].write_text(textwrap.dedent(text))
    command = [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", CACHE, *paths]
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode in (0, 1) and not done.stderr, done.stdout + done.stderr
    found: dict[str, set[int]] = {name: set() for name in programs}
    for line in done.stdout.splitlines():
        match = re.match(r"(.+)\.py:(\d+): error: ", line)
        if match is not None:
            assert Path(match[1]).name in programs, f"an error in the package itself: {line}"
            found[Path(match[1]).name].add(int(match[2]))
    return found


def test_mistakes_are_found_and_what_is_right_is_not_blamed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    lines = textwrap.dedent(MISTAKES).splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# mistake")}
    assert len(wrong) == 27
    assert told(tmp_path, mistakes=MISTAKES, right=RIGHT) == {"mistakes": wrong, "right": set()}
