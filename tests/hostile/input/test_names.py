"""Names are data: of a table, a column, a token or a key none ever becomes part of a path."""

from __future__ import annotations

import json
import os
import stat
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.format import names
from kudu_core.errors import Corruption
from kudu_core.fs.base import is_temporary, temporary_of
from kudu_core.rowset.rows.meta import ColumnsRef, DeltaRef, FileRef, RowSetMeta
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun
from kudu_core.tablet.compact.merge_remote import BuiltRange
from kudu_core.tablet.ingest import install
from kudu_core.tablet.store.edits import file_name
from tests.support.tables import Make

NAMES = [
    "a/b",
    "../../../etc/passwd",
    "..",
    ".",
    "/",
    "TABLE",
    "MANIFEST",
    "*.rows",
    "a b\tc\nd",
    "'; drop table t; --",
    "%s{0}$HOME`id`",
    "\\",
    "é" * 100,
    unicodedata.normalize("NFC", "café"),
    unicodedata.normalize("NFD", "café"),
    "\u202eabc",
    "🦀",
    "n" * 256,
]


def below(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*"))


def test_any_column_name_is_data(make: Make, tmp_path: Path, path: Path) -> None:
    schema = pa.schema([(name, pa.int64()) for name in NAMES])
    table = make(schema, (NAMES[0],), partition_by=kc.HashPartition(NAMES[0], 2), ingest_threshold_rows=50)
    wanted = {name: i for i, name in enumerate(NAMES)}
    table.insert([wanted])
    table.insert({name: list(range(100, 200)) for name in NAMES})
    table.flush()
    table.update({NAMES[0]: [0], NAMES[1]: [-1]})
    table.flush()
    table.close()
    with kc.open_table(path) as reader:
        assert reader.schema.names == NAMES, "no name was normalised, cut or merged with another"
        assert reader.get(0) == {**wanted, NAMES[1]: -1}
        assert reader.count(where=[(NAMES[2], "=", 2)]) == 1
    assert os.listdir(tmp_path) == ["t"]
    allowed = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-./")
    assert all(set(name) <= allowed for name in below(path)), below(path)


@pytest.mark.parametrize("name", ["", "a\0b", "n" * 257, "\ud800", "_op", "_timestamp_x", "_before"])
def test_column_names_that_are_refused(path: Path, name: str) -> None:
    with pytest.raises(kc.InvalidArgument, match="name"):
        kc.create_table(path, [kc.Column("k", pa.int64()), kc.Column(name, pa.int64())], "k")
    assert not path.exists()


@pytest.mark.parametrize("name", ["a b", "ü", "new\nline", "%s", "-rf", "...", "n" * 255])
def test_any_folder_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with kc.create_table(path, pa.schema([("k", pa.int64())]), "k") as table:
        table.insert({"k": [1]})
        table.flush()
    with kc.open_table(path) as reader:
        assert reader.count() == 1
    assert os.listdir(tmp_path) == [name]


def test_a_folder_name_that_the_system_refuses(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        kc.create_table(tmp_path / ("n" * 256), pa.schema([("k", pa.int64())]), "k")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("app", ["../../x", "a/b", "é", "a\nb", "x" * 1_000])
def test_tokens_are_data(make: Make, path: Path, app: str) -> None:
    table = make()
    before = below(path)
    table.insert({"k": [1]}, txn=(app, 1))
    table.close()
    assert below(path) == before
    with kc.open_table(path, "rw") as again:
        assert again.insert({"k": [1]}, txn=(app, 1)).inserted == 1, "the stored answer"


def test_keys_are_data(make: Make, path: Path) -> None:
    table = make(pa.schema([("k", pa.string()), ("v", pa.int64())]))
    keys = [*NAMES, "", "a\0b", "x" * 10_000]
    table.insert({"k": keys, "v": list(range(len(keys)))})
    table.flush()
    assert [table.get(key)["v"] for key in keys] == list(range(len(keys)))  # type: ignore[index]
    assert len(below(path)) < 15


LEADING_ELSEWHERE = [
    "../TABLE",
    "/etc/passwd",
    "a/../b",
    "a/b/c",
    "a//b",
    "a/",
    "/a",
    "",
    ".",
    "..",
    ".x",
    "a/.x",
    "a\0b",
    "a\nb",
    "000001-00000001.rows\n",
    "-rf",
    "\ud800",
    "\u0661\u0661\u0661\u0661\u0661\u0661-00000001.rows",
    "n" * 256,
    None,
    5,
    ["a"],
]
"""What no stored name may be."""

FILE = ["000001-00000001.rows", 1, 1]
DELTA = {"file": FILE, "entries": 1, "ts": [1, 1], "record_ts": None, "liveness": 0, "updates": []}
ROWSET = {
    "id": 1, "base": FILE, "rows": 1, "keys": ["", ""], "insert_ts": 1, "max_insert_ts": 1, "D": 1,
    "redo": [], "undo": [], "replaced": [], "statistics": None,
}  # fmt: skip
RUN = {
    "file": FILE, "rows": 1, "ordinal": 0, "keys": ["", ""], "bytes": 1, "op": None, "columns": [],
    "suspect": False, "status": False, "sequence": None, "rowset": None, "fingerprint": None,
}  # fmt: skip
RESOLUTION = {
    "tablet": 1, "ordinal": 0, "schema_version": 1, "cut": 1, "seen": [], "runs": [], "rowsets": [],
    "deltas": [], "by_key": None, "counts": [0, 0, 0, 0], "undecided": False,
}  # fmt: skip
BUILT = {"number": 0, "folder": "a", "outputs": [], "homes": ["a", 1, 1]}

Parser = Callable[[object], object]


def resolution(**members: object) -> object:
    return Resolution.from_bytes(json.dumps({**RESOLUTION, **members}).encode())


def built(**members: object) -> object:
    return BuiltRange.from_bytes(json.dumps({**BUILT, **members}).encode())


PARSERS: dict[str, Parser] = {
    "file": lambda name: FileRef.from_json([name, 1, 1]),
    "staged file": lambda name: FileRef.staged([name, 1, 1]),
    "delta file": lambda name: DeltaRef.from_json({**DELTA, "file": [name, 1, 1]}),
    "columns": lambda name: ColumnsRef.from_json([[name, 1, 1], [[1, 1]], None]),
    "base": lambda name: RowSetMeta.from_json({**ROWSET, "base": [name, 1, 1]}),
    "redo": lambda name: RowSetMeta.from_json({**ROWSET, "redo": [{**DELTA, "file": [name, 1, 1]}]}),
    "undo": lambda name: RowSetMeta.from_json({**ROWSET, "undo": [{**DELTA, "file": [name, 1, 1]}]}),
    "replaced": lambda name: RowSetMeta.from_json({**ROWSET, "replaced": [[[name, 1, 1], [[1, 1]], None]]}),
    "ingest record": lambda name: install.parse_part(
        {"rowsets": [{**ROWSET, "base": [name, 1, 1]}], "deltas": {}}, "record", 0
    ),
    "ingest record's delta": lambda name: install.parse_part(
        {"rowsets": [], "deltas": {"1": {**DELTA, "file": [name, 1, 1]}}}, "record", 0
    ),
    "named files": lambda name: install.named_files({"rowsets": [{**ROWSET, "base": [name, 1, 1]}]}),
    "named delta": lambda name: install.named_files({"deltas": {"1": {**DELTA, "file": [name, 1, 1]}}}),
    "run": lambda name: StagedRun.from_json({**RUN, "file": [name, 1, 1]}),
    "sequence": lambda name: StagedRun.from_json({**RUN, "sequence": [name, 1, 1]}),
    "resolved runs": lambda name: resolution(runs=[name]),
    "resolved rowset": lambda name: resolution(rowsets=[[name, ROWSET]]),
    "resolved rowset's file": lambda name: resolution(rowsets=[["a/b", {**ROWSET, "base": [name, 1, 1]}]]),
    "resolved delta": lambda name: resolution(deltas=[[1, name, DELTA]]),
    "resolved by key": lambda name: resolution(by_key=[name, 1, 1]),
    "merge's folder": lambda name: built(folder=name),
    "merge's homes": lambda name: built(homes=[name, 1, 1]),
    "merge's output": lambda name: built(outputs=[[[0], 1, {**ROWSET, "base": [name, 1, 1]}]]),
}


@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
def test_stored_names_lead_nowhere_else(parser: Parser) -> None:
    """One rule for each name that is read from a file or is a task's answer, asked where it is parsed."""
    parser("000001-00000001.rows")
    for name in LEADING_ELSEWHERE:
        with pytest.raises((ValueError, Corruption)):
            parser(name)


JOB_FILES = f"files/job-{'0' * 32}"


@pytest.mark.parametrize(
    "name",
    [
        "TABLE", "MANIFEST", "1.rows", "000001-00000001.row", "000001-1.delta", JOB_FILES, f"{JOB_FILES}/",
        f"{JOB_FILES}/..", f"{JOB_FILES}/../x", f"{JOB_FILES}/a/b/c", f"{JOB_FILES}/a/../b",
        f"{JOB_FILES}//a", f"/{JOB_FILES}/a", f"x/{JOB_FILES}/a", "files/job-1/a", "files/a",
        f"staging/job-{'0' * 32}/a", f"{JOB_FILES}/a\n", f"{JOB_FILES}/" + "a" * 201,
        "../00000002/000001-00000001.rows",
    ],
)  # fmt: skip
def test_a_tablet_names_data_files_alone(name: str) -> None:
    """A merge retires what a manifest names: MANIFEST itself must not be among it."""
    with pytest.raises(ValueError, match="file name"):
        FileRef.from_json([name, 1, 1])


def test_the_names_that_are_given_are_those_that_are_taken() -> None:
    for epoch in (1, 999_999, (1 << 31) - 1):
        for number in (1, 99_999_999, (1 << 64) - (1 << 32) - 1):
            for kind in ("rows", "delta"):
                assert names.is_data_file(file_name(epoch, number, kind))
    for tablet in (1, 99_999_999, names.MAX_TABLET - 1):
        assert names.tablet_of_folder(names.tablet_folder(tablet)) == tablet
    for other in ("00000000", "1", "000000001", "0" * 10, str(names.MAX_TABLET), "\u0661" * 8, "00000001\n"):
        assert names.tablet_of_folder(other) is None, other
    assert names.is_staging(f"{names.JOB}{'0' * 32}") and names.is_job(f"{names.JOB}{'0' * 32}")
    assert names.is_staging(f"{names.MERGE}{'a' * 32}") and not names.is_job(f"{names.MERGE}{'a' * 32}")
    for other in ("job-1", "job-" + "g" * 32, "job-" + "A" * 32, "home", f"x{names.JOB}{'0' * 32}", "job-"):
        assert not names.is_staging(other), other
    for path in ("p00000-a1-0.rows", "resolved-0/3-000001-00000001.delta"):
        assert names.data_file(f"{JOB_FILES}/{path}") == f"{JOB_FILES}/{path}"
        assert names.file_path("/t/tablets/00000001", f"{JOB_FILES}/{path}") == f"/t/{JOB_FILES}/{path}"
    assert names.file_path("s3://b/tablets/00000001", "x.rows") == "s3://b/tablets/00000001/x.rows"
    assert names.backup_of_folder("00000007") == 7
    for other in ("00000000", "7", "000000007", "\u0661" * 8, "0000000a", "00000007\n"):
        assert names.backup_of_folder(other) is None, other


@pytest.mark.parametrize(
    ("name", "of"),
    [
        (".TABLE.0123456789ab.tmp", "TABLE"),
        (".00000001.0123456789abcdef0123456789abcdef.tmp", "00000001"),
        (".TABLE.notes.tmp", None),
        (".tmp", None),
        ("TABLE.0123.tmp", None),
        (".TABLE.0123.tmp ", None),
        (".TABLE.0123456789abcdef0123456789abcdef0.tmp", None),
    ],
)
def test_a_temporary_name_says_of_what(name: str, of: str | None) -> None:
    assert temporary_of(name) == of
    assert is_temporary(name) == (of is not None)


def test_links_are_not_followed(make: Make, tmp_path: Path, path: Path) -> None:
    """A file of a table that became a link to another file is refused, and that file is left alone."""
    table = make()
    table.insert({"k": [1]})
    table.flush()
    table.insert({"k": [2]})
    table.close()
    for file in [p for p in path.rglob("*") if p.is_file() and p.suffix != ".copy"]:  # those nobody opens
        outside = tmp_path / "outside"
        content = file.read_bytes()
        outside.write_bytes(content)
        file.unlink()
        file.symlink_to(outside)
        with pytest.raises((OSError, Corruption)), kc.open_table(path, "rw") as opened:
            opened.scan().to_table()
        assert outside.read_bytes() == content
        file.unlink()
        file.write_bytes(content)


def test_who_is_kept_out_by_the_umask_has_no_rights(make: Make, path: Path) -> None:
    """Nothing is made with more rights than the umask leaves, nor given more after."""
    old = os.umask(0o077)
    try:
        table = make(ingest_threshold_rows=5)
        table.insert({"k": list(range(10))})
        table.insert({"k": [100]})
        table.flush()
        table.close()
    finally:
        os.umask(old)
    for entry in (path, *path.rglob("*")):
        mode = stat.S_IMODE(entry.lstat().st_mode)
        assert mode == (0o700 if entry.is_dir() else 0o600), f"{entry}: {mode:o}"
