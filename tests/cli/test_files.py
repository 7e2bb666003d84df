"""``import`` and ``export``: what is written to a file comes back as it was, in every format and type."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kudu_core as kc
from kudu_core.cli.shared.json_values import json_rows
from tests.cli.conftest import Call

LONG = "12345678901234567890123456789012345.67"
PAIR = pa.struct({"x": pa.int8(), "y": pa.binary()})
ODD = pa.table({
    "k": pa.array([1, 2, 3], pa.uint64()),
    "f": pa.array([1.5, float("nan"), None], pa.float32()),
    "inf": pa.array([float("inf"), float("-inf"), 0.1]),
    "b": pa.array([True, None, False]),
    "s": pa.array(["", None, 'NULL, "x"\nß']),
    "raw": pa.array([b"\x00\xff", None, b""]),
    "dec": pa.array([Decimal("0.00"), None, Decimal(f"-{LONG}")], pa.decimal128(37, 2)),
    "day": pa.array([0, None, 30000], pa.date32()),
    "ns": pa.array([1, None, -1], pa.timestamp("ns")),
    "berlin": pa.array([0, None, 1], pa.timestamp("ms", "Europe/Berlin")),
    "noon": pa.array([43_200_000_001, None, 0], pa.time64("us")),
    "span": pa.array([-1, None, 2**60], pa.duration("us")),
    "u": pa.array([b"a" * 16, None, b"b" * 16], pa.uuid()),
    "l": pa.array([["a", None], None, []], pa.list_(pa.string())),
    "st": pa.array([{"x": 1, "y": b"z"}, None, {"x": None, "y": None}], PAIR),
    "m": pa.array([[("a", Decimal("1.0"))], None, []], pa.map_(pa.string(), pa.decimal128(5, 1))),
    "c": pa.array(["red", None, "red"]).dictionary_encode(),
    "iv": pa.array([(1, 2, 3), None, (0, 0, 0)], pa.month_day_nano_interval()),
})  # fmt: skip


def made(path: Path, table: pa.Table, key: str = "k") -> str:
    with kc.create_table(path, table.schema, key) as new:
        new.insert(table)
    return str(path)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "arrow", "jsonl.gz"])
def test_every_type_comes_back(call: Call, tmp_path: Path, kind: str) -> None:
    source, file = made(tmp_path / "a", ODD), tmp_path / f"rows.{kind}"
    told = call("export", source, file, "--json").document
    assert told["rows"] == 3 and told["files"] == 1
    kc.create_table(tmp_path / "b", ODD.schema, "k").close()
    assert call("import", tmp_path / "b", file, "--json").document["inserted"] == 3
    with kc.open_table(source) as one, kc.open_table(tmp_path / "b") as other:
        want, got = one.scan(order="key").to_table(), other.scan(order="key").to_table()
        assert list(json_rows(got)) == list(json_rows(want))
        assert got.schema == want.schema


def test_json_is_what_the_page_says(call: Call, tmp_path: Path) -> None:
    first, second, third = call("scan", made(tmp_path / "a", ODD), "--order", "key", "--json").records
    assert first["dec"] == "0.00" and third["dec"] == f"-{LONG}"
    assert second["f"] == "NaN"
    assert (first["inf"], second["inf"], third["inf"]) == ("Infinity", "-Infinity", 0.1)
    assert first["raw"] == "AP8=" and third["raw"] == "" and second["raw"] is None
    assert first["ns"] == "1970-01-01T00:00:00.000000001" and first["berlin"] == "1970-01-01T00:00:00.000Z"
    assert first["noon"] == "12:00:00.000001" and first["day"] == "1970-01-01" and third["span"] == 2**60
    assert first["u"] == "61616161-6161-6161-6161-616161616161" and first["m"] == [["a", "1.0"]]
    assert first["st"] == {"x": 1, "y": "eg=="} and second["st"] is None
    assert first["iv"] == {"months": 1, "days": 2, "nanoseconds": 3} and first["c"] == "red"


def test_parquet_and_a_folder_of_it(call: Call, orders: str, tmp_path: Path) -> None:
    call("export", orders, tmp_path / "o.parquet", "--where", "customer = 'ann'")
    assert pq.read_table(tmp_path / "o.parquet").num_rows == 2
    assert call("export", orders, f"{tmp_path}/parts/", "--rows-per-file", 2, "--json").document["files"] == 2
    sizes = [pq.read_metadata(file).num_rows for file in sorted((tmp_path / "parts").iterdir())]
    assert sizes == [2, 1]
    call("create", tmp_path / "c", "--like", tmp_path / "parts", "--key", "customer,number")
    assert call("import", tmp_path / "c", tmp_path / "parts", "--json").document["rows"] == 3
    assert "holds something" in call("export", orders, f"{tmp_path}/parts/", code=1).err


def test_partition_columns_of_folder_names_are_columns(call: Call, tmp_path: Path) -> None:
    for day in (1, 2):
        folder = tmp_path / "days" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"k": [day]}), folder / "p.parquet")
    call("create", tmp_path / "t", "--column", "k:int64", "--column", "day:int32", "--key", "k")
    call("import", tmp_path / "t", tmp_path / "days")
    assert call("scan", tmp_path / "t", "--order", "key", "--json").records == [
        {"k": 1, "day": 1}, {"k": 2, "day": 2},
    ]  # fmt: skip


@pytest.mark.skipif(find_spec("deltalake") is None, reason="no deltalake")
def test_delta(call: Call, orders: str, tmp_path: Path) -> None:
    call("export", orders, tmp_path / "d", "--format", "delta")
    call("create", tmp_path / "c", "--like", tmp_path / "d", "--key", "customer,number")
    assert call("import", tmp_path / "c", tmp_path / "d", "--json").document["inserted"] == 3


def test_stdout_and_stdin(call: Call, orders: str, tmp_path: Path) -> None:
    lines = call("export", orders, "-", "--format", "jsonl", "--order", "key").out
    assert [json.loads(line)["number"] for line in lines.splitlines()] == [1, 2, 1]
    call("truncate", orders, "--yes")
    assert call("import", orders, "-", "--format", "jsonl", "--json", stdin=lines).document["inserted"] == 3
    csv = "customer,number,amount\nzoe,9,1.10\n"
    assert call("import", orders, "-", "--format", "csv", "--json", stdin=csv).document["inserted"] == 1
    assert call("get", orders, "zoe", 9, "--json").document["amount"] == "1.10"


def test_operations(call: Call, orders: str) -> None:
    def run(operation: str, rows: str, *more: str, code: int = 0) -> dict[str, object]:
        ended = call("import", orders, "-", "--format", "jsonl", "--operation", operation, "--json", *more,
                     stdin=rows, code=code)  # fmt: skip
        return ended.document if ended.out else {"err": ended.err}  # type: ignore[no-any-return]

    ann = '{"customer":"ann","number":1,"amount":"9.00"}\n'
    new = '{"customer":"new","number":1,"amount":"1.00"}\n'
    assert run("update", ann)["updated"] == 1
    row = call("get", orders, "ann", 1, "--json").document
    assert row["amount"] == "9.00" and row["placed"] is not None, "what is left out keeps its value"
    assert run("upsert", ann + new)["inserted"] == 1
    assert run("insert-ignore", ann)["ignored"] == 1
    assert run("delete", ann)["deleted"] == 1
    assert run("delete-ignore", ann)["ignored"] == 1
    assert "not_found" in str(run("update", ann, code=1)["err"])
    some = run("insert", ann + new, "--skip-refused", code=1)
    assert some["inserted"] == 1 and some["refused"] == 1
    refused = {"row": 1, "code": "already_present", "key": {"customer": "new", "number": 1}}
    assert some["first_refused"] == [refused]


def test_an_import_is_one_call(call: Call, orders: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"customer":"x","number":1}\n')
    (tmp_path / "b.jsonl").write_text('{"customer":"ann","number":1}\n')
    refused = call("import", orders, tmp_path / "a.jsonl", tmp_path / "b.jsonl", code=1)
    assert "already_present" in refused.err
    assert call("count", orders).out == "3\n"
    both = ("import", orders, tmp_path / "a.jsonl", "--txn", "load:1", "--json")
    assert [call(*both).document["deduplicated"] for _ in range(2)] == [False, True]
    (tmp_path / "c.jsonl").write_text('{"customer":"y","number":1,"amount":"1"}\n')
    assert "other columns" in call("import", orders, tmp_path / "a.jsonl", tmp_path / "c.jsonl", code=1).err


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ('{"customer":"x","number":1}\nnonsense\n', "line 2"),
        ('{"customer":"x","number":1}\n[1]\n', "line 2: a row is a JSON object, not list"),
        ('{"customer":"x","number":1}\n{"customer":"y","nummer":2}\n', "'nummer'"),
        ('{"customer":"x","number":1,"amount":"dear"}\n', "column 'amount' is decimal128(12, 2)"),
        ('{"customer":"x","number":1,"mark":"?"}\n', "column 'mark' is binary"),
        ('{"customer":"x","number":1,"placed":"yesterday"}\n', "column 'placed'"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_nothing_is_written(
    call: Call, orders: str, rows: str, said: str
) -> None:
    refused = call("import", orders, "-", "--format", "jsonl", stdin=rows, code=1)
    assert said in refused.err and refused.err.count("\n") == 1
    assert call("count", orders).out == "3\n"


def test_a_row_that_is_wrong_is_named_in_later_blocks_too(
    call: Call, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kudu_core.cli.shared.files_read._LINES", 2)
    rows = "".join(f'{{"customer":"x","number":{n}}}\n' for n in range(4))
    wrong = rows + '{"customer":"y","nummer":2}\n'
    assert "row 5" in call("import", orders, "-", "--format", "jsonl", stdin=wrong, code=1).err
    assert call("import", orders, "-", "--format", "jsonl", "--json", stdin=rows).document["inserted"] == 4


def test_times_of_day_with_few_digits_and_with_too_many(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "t"
    call("create", path, "--column", "at:time64[us]", "--column", "ms:time32[ms]", "--key", "at")
    line = '{"at":"12:30:00.5","ms":"00:00:01.25"}\n'
    call("import", path, "-", "--format", "jsonl", stdin=line)
    row = {"at": "12:30:00.500000", "ms": "00:00:01.250"}
    assert call("get", path, "12:30:00.5", "--json").document == row
    finer = '{"at":"12:30:01","ms":"00:00:01.2501"}\n'
    assert "no time of day in ms" in call("import", path, "-", "--format", "jsonl", stdin=finer, code=1).err


def test_a_file_is_written_whole_or_not_at_all(
    call: Call, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "o.jsonl"
    file.write_text("mine")
    assert "--replace" in call("export", orders, file, code=1).err
    assert file.read_text() == "mine"

    def broken(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kudu_core.cli.shared.files_written.json_line", broken)
        assert call("export", orders, file, "--replace", code=130).err.endswith("interrupted\n")
    assert file.read_text() == "mine" and not list(tmp_path.glob(".*"))
    call("export", orders, file, "--replace")
    assert len(file.read_text().splitlines()) == 3
    call("export", orders, tmp_path / "o.csv.gz")
    assert gzip.decompress((tmp_path / "o.csv.gz").read_bytes()).startswith(b'"customer"')
