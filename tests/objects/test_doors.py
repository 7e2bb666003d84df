"""Wherever a path is taken, a URL is no path: no folder named ``s3:`` is made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc

SCHEMA = pa.schema([("k", pa.int64())])
URL = "s3://bucket/x"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def backed_up(url: Any, beside: Path) -> object:
    with kc.create_table(beside / "t", SCHEMA, "k", exist_ok=True) as table:
        return table.backup(url)


def restored(url: Any, beside: Path) -> object:
    with kc.create_table(beside / "t", SCHEMA, "k", exist_ok=True) as table:
        table.backup(beside / "b")
    return kc.restore(beside / "b", url)


OPEN: dict[str, Callable[[Any, Path], object]] = {
    "create_table": lambda url, _: kc.create_table(url, SCHEMA, "k"),
    "create_table, exist_ok": lambda url, _: kc.create_table(url, SCHEMA, "k", exist_ok=True),
    "open_table": lambda url, _: kc.open_table(url),
    "open_table, rw": lambda url, _: kc.open_table(url, "rw"),
    "restore from": lambda url, beside: kc.restore(url, beside / "r"),
    "backup": backed_up,
    "restore to": restored,
}
"""Those that lead to a place in a store."""
CLOSED: dict[str, Callable[[Any, Path], object]] = {
    "repair": lambda url, _: kc.repair(url),
    "repair to": lambda url, beside: kc.repair(beside / "t", url),
}


@pytest.mark.parametrize("door", CLOSED)
def test_what_a_store_has_not_yet(here: Path, tmp_path: Path, door: str) -> None:
    with pytest.raises(kc.NotSupported, match=r"s3://bucket/x: this works on folders .* not yet this"):
        CLOSED[door](URL, tmp_path)
    assert os.listdir(here) == []


@pytest.mark.parametrize("door", [*OPEN, *CLOSED])
def test_an_unknown_scheme_is_no_folder(here: Path, tmp_path: Path, door: str) -> None:
    for wrong in ("s4://x", "file:///x", Path(URL)):
        with pytest.raises(kc.InvalidArgument, match=r"no scheme 's4'|without its scheme|pathlib takes one"):
            {**OPEN, **CLOSED}[door](wrong, tmp_path)
        assert os.listdir(here) == []
        for path in (tmp_path / "t", tmp_path / "b"):
            shutil.rmtree(path, ignore_errors=True)


def test_sparks_doors(here: Path, tmp_path: Path) -> None:
    import kudu_core.spark as ks
    from kudu_core.engines.spark.options import ReadOptions, WriteOptions

    for options in (ReadOptions, WriteOptions):
        given = {"path": f"{URL}/", "Storage.region": "x", "storage.client_options.timeout": "5s"}
        found = options.parse(given)
        assert found.path == URL
        assert found.storage == {"region": "x", "client_options": {"timeout": "5s"}}
        assert "5s" not in repr(found), "what may be a secret is in no log"
        for wrong in ("storage.", "storage.a.b", "storage.client_options.a.b"):
            with pytest.raises(kc.InvalidArgument, match="those of a store's client"):
                options.parse({"path": URL, wrong: "x"})
        with pytest.raises(kc.InvalidArgument, match="no scheme"):
            options.parse({"path": "s4://x"})
    with pytest.raises(kc.InvalidArgument, match="names and plain values"):
        ks.table(URL, storage_options={"credential_provider": print})
    with pytest.raises(kc.InvalidArgument, match="no scheme"):
        ks.table("s4://x")
    assert os.listdir(here) == []
    kc.create_table(tmp_path / "t", SCHEMA, "k").close()
    assert ReadOptions.parse({"path": f"file://{tmp_path}/t"}).path == f"{tmp_path}/t", "as ever"
