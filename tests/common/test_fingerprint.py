"""The fingerprint of a write: the same for the same rows however they come, and fixed for ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.idempotence.fingerprint import NO_ROWS, Fingerprint, of_predicate
from kudu_core.common.idempotence.writers import AppliedWrite
from tests.support.inside import applied_writes_of, schema_of
from tests.support.oracles.columns import row_hash as oracle

GOLDEN = Path(__file__).parent / "golden/row_fingerprint.json"
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), False),
        ("i", pa.int32()),
        ("u", pa.uint8()),
        ("f", pa.float64()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("raw", pa.binary()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("n", pa.decimal128(20, 2)),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "k": 1, "i": -5, "u": 200, "f": 0.5, "b": True, "s": "h\N{LATIN SMALL LETTER E WITH ACUTE}",
        "raw": b"\x00\xff", "d": date(2026, 1, 31), "t": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "n": Decimal("-1.25"),
    },
    {
        "k": 2, "i": None, "u": 0, "f": -0.0, "b": False, "s": "", "raw": None, "d": None, "t": None,
        "n": None,
    },
    {
        "k": -3, "i": 0, "u": 1, "f": float("nan"), "b": None, "s": None, "raw": b"",
        "d": date(1969, 12, 31), "t": datetime(1969, 12, 31, tzinfo=UTC),
        "n": Decimal("99999999999999999.99"),
    },
]  # fmt: skip


def create(path: Path, **options: Any) -> kc.Table:
    return kc.create_table(path / "t", SCHEMA, "k", options={"maintenance": "manual", **options})


def token(table: kc.Table) -> AppliedWrite:
    return applied_writes_of(table)["golden"]


def cells(row: dict[str, Any]) -> dict[int, bytes | None]:
    """The physical cells of a row of ``SCHEMA``, by the ids that its columns have."""
    array = pa.RecordBatch.from_pylist([row], schema=SCHEMA)
    out: dict[int, bytes | None] = {}
    for column_id, column in enumerate(array.columns, 1):
        value = column[0]
        if not value.is_valid:
            out[column_id] = None
        elif pa.types.is_boolean(column.type):
            out[column_id] = bytes([value.as_py()])
        elif pa.types.is_string(column.type):
            out[column_id] = value.as_py().encode()
        elif pa.types.is_binary(column.type):
            out[column_id] = value.as_py()
        else:
            out[column_id] = column.buffers()[1].to_pybytes()[: column.type.bit_width // 8]
    return out


def by_predicate(table: kc.Table, number: int) -> None:
    """Writes that are no list of rows."""
    if number == 0:
        table.delete(where=[("k", "in", list(range(30)))], txn=("golden", 1))
    elif number == 1:
        later = {"f": pc.field("f") * 2 + 0.1, "s": "x", "t": datetime(2030, 1, 1, tzinfo=UTC)}
        table.update(where=(pc.field("k") > 1) & pc.field("s").is_valid(), set=later, txn=("golden", 1))
    else:
        table.delete(where=pc.starts_with(pc.field("s"), "a"), txn=("golden", 1))


WRITES: dict[str, Callable[[kc.Table], Any]] = {
    "insert": lambda t: t.insert(ROWS, txn=("golden", 1)),
    "some columns": lambda t: t.upsert([{"k": r["k"], "s": r["s"]} for r in ROWS], txn=("golden", 1)),
    "delete": lambda t: t.delete([1, 2, 5], on_missing="ignore", txn=("golden", 1)),
    "operations": lambda t: t.apply(
        pa.table({"k": [7, 8], "i": pa.array([1, None], pa.int32()), "_op": ["insert", "upsert"]}),
        txn=("golden", 1),
    ),
    "where 0": lambda t: by_predicate(t, 0),
    "where 1": lambda t: by_predicate(t, 1),
    "where 2": lambda t: by_predicate(t, 2),
}


def test_fingerprints_are_these(tmp_path: Path, rewrite: bool) -> None:
    found = {}
    for name, write in WRITES.items():
        (tmp_path / name).mkdir()
        with create(tmp_path / name) as table:
            write(table)
            found[name] = token(table).rows.to_json()
    if rewrite:
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(GOLDEN.read_text())


def test_the_fingerprint_is_what_the_format_says(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        assert [c.id for c in schema_of(table).columns] == list(range(1, len(SCHEMA) + 1))
        for operation, name in ((0, "insert"), (2, "upsert"), (1, "insert_ignore"), (6, "delete_ignore")):
            if name == "insert":
                table.insert(ROWS, txn=("golden", operation))
                wanted = [(0, cells(row)) for row in ROWS]
            elif name == "upsert":
                table.upsert([{"s": r["s"], "k": r["k"]} for r in ROWS], txn=("golden", operation))
                wanted = [(2, {i: c for i, c in cells(row).items() if i in (1, 6)}) for row in ROWS]
            elif name == "insert_ignore":
                table.insert(ROWS, on_conflict="ignore", txn=("golden", 3))
                wanted = [(1, cells(row)) for row in ROWS]
            else:
                table.delete([5, 5, 6], on_missing="ignore", txn=("golden", 4))
                wanted = [(7, {1: k.to_bytes(8, "little")}) for k in (5, 5, 6)]
            assert token(table).rows == Fingerprint(*oracle.fingerprint(wanted)), name


def test_a_predicate_is_known_by_its_text(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        by_predicate(table, 0)
        values = ",".join(map(str, range(30)))
        text = (
            '{"set":null,"where":["call","is_in",[["field","k"]],'
            f'{{"null_matching_behavior":0,"value_set":[{values}]}}]}}'
        )
        assert token(table).rows == Fingerprint(*oracle.text_fingerprint(text))


@pytest.mark.parametrize(
    "where",
    [
        pc.field("k").isin([*range(14), 99, *range(15, 30)]),
        pc.field("k").isin([*range(30), 30]),
        pc.field("i").isin(list(range(30))),
        ~pc.field("k").isin(list(range(30))),
    ],
)
def test_another_predicate_has_another_fingerprint(tmp_path: Path, where: Any) -> None:
    """Also where pyarrow's text of the two is the same: it leaves out the middle of a long list."""
    with create(tmp_path) as table:
        by_predicate(table, 0)
        with pytest.raises(kc.errors.TokenMismatch, match="not the same one"):
            table.delete(where=where, txn=("golden", 1))
        assert table.delete(where=pc.field("k").isin(list(range(30))), txn=("golden", 1)).deduplicated


def test_an_interval_is_spelled_as_its_parts() -> None:
    def of(*parts: int) -> Fingerprint:
        interval = pa.scalar(parts, pa.month_day_nano_interval())
        return of_predicate(pc.field("t") == pc.scalar(interval), None)

    assert of(1, 2, 3) == of(1, 2, 3)
    assert len({of(1, 2, 3), of(2, 2, 3), of(1, 3, 3), of(1, 2, 4)}) == 4
    text = """["literal","month_day_nano_interval",[1,2,3]]"""
    whole = f"""{{"set":null,"where":["call","equal",[["field","t"],{text}],null]}}"""
    assert of(1, 2, 3) == Fingerprint(*oracle.text_fingerprint(whole))


def test_shares_add_up() -> None:
    parts = [Fingerprint(1, (1 << 64) - 1, 5), Fingerprint(2, 3, (1 << 64) - 2)]
    assert parts[0] + parts[1] == Fingerprint(3, 2, 3)
    assert Fingerprint.from_json(parts[0].to_json()) == parts[0]
    assert NO_ROWS.to_json() == [0, "0" * 32]


@pytest.mark.parametrize(
    "stored",
    [[1, "0" * 31], [1, "A" * 32], [1, "+" + "0" * 31], [-1, "0" * 32], [1], [True, "0" * 32], [1, 5]],
)
def test_a_broken_fingerprint_is_refused(stored: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        Fingerprint.from_json(stored)
