"""What is wrong ends in one line on stderr, with the exit code that docs/cli.md names."""

from __future__ import annotations

from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.cli.registry import COMMANDS
from tests.cli.conftest import Call


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nosuch"], 2, "there is no command 'nosuch'"),
        (["inf"], 2, "did you mean info?"),
        (["count"], 2, "Missing argument 'PATH'"),
        (["count", "ORDERS", "--nosuch"], 2, "No such option"),
        (["count", "/nowhere/t"], 1, "there is no table at /nowhere/t"),
        (["count", "ORDERS", "--where", "amount >"], 1, "error"),
        (["count", "ORDERS", "--where", "amout > 1"], 1, "amout"),
        (["head", "ORDERS", "--columns", "nosuch"], 1, "nosuch"),
        (["get", "ORDERS", "ann"], 2, "the key is CUSTOMER NUMBER"),
        (["get", "ORDERS", "ann", "one"], 2, "key column 'number': 'one' does not fit int64"),
        (["get", "ORDERS", "[1"], 2, "no JSON array"),
        (["scan", "ORDERS", "--key-range", "1"], 2, "array of two bounds"),
        (["create", "NEW", "--key", "k"], 2, "give --like FILE, or --column"),
        (["create", "NEW", "--key", "k", "--column", "k"], 2, "NAME:TYPE"),
        (["create", "NEW", "--key", "k", "--column", "k:int65"], 1, "int65"),
        (["create", "NEW", "--key", "k", "--column", "k:int64", "--option", "x=1"], 1, "x"),
        (["create", "NEW", "--key", "k", "--column", "k:int64", "--hash", "k=many"], 2, "N buckets"),
        (["create", "ORDERS", "--key", "k", "--column", "k:int64"], 1, "ORDERS"),
        (["import", "ORDERS", "/nowhere.parquet"], 1, "there is no file /nowhere.parquet"),
        (["import", "ORDERS", "TMP"], 1, "--format"),
        (["import", "ORDERS", "x.csv", "--txn", "job"], 2, "NAME:NUMBER"),
        (["alter", "ORDERS"], 2, "nothing to change is given"),
        (["alter", "ORDERS", "--default", "nosuch=1"], 2, "there is no column 'nosuch'"),
        (["truncate", "ORDERS"], 2, "--yes"),
        (["drop", "ORDERS"], 2, "--yes"),
        (["tag", "ORDERS", "--delete"], 2, "NAME"),
        (["restore", "/nowhere", "NEW"], 1, "/nowhere"),
        (["inspect", "/nowhere/TABLE"], 1, "there is no file"),
    ],
)
def test_one_line_and_an_exit_code(
    call: Call, orders: str, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    places = {"ORDERS": orders, "NEW": str(tmp_path / "new"), "TMP": str(tmp_path / "empty")}
    (tmp_path / "empty").mkdir()
    ended = call(*(places.get(word, word) for word in words), code=code)
    assert ended.out == "" and ended.err.count("\n") == 1
    assert ended.err.startswith("kudu_core: ") and places.get(said, said) in ended.err
    assert not (tmp_path / "new").exists()
    assert call("count", orders).out == "3\n"


def test_debug_shows_the_traceback(orders: str) -> None:
    from kudu_core.cli.command_group import kudu_core_command

    with pytest.raises(kc.TableNotFound):
        kudu_core_command.main(["count", f"{orders}/no", "--debug"], standalone_mode=False)


def test_a_defect_is_called_one(call: Call, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(kc.Table, "count", broken)
    assert call("count", orders, code=1).err == (
        "kudu_core: error: RuntimeError: two lines (a defect of kudu_core: --debug shows where)\n"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(call: Call, name: str) -> None:
    text = call(name, "--help").out
    assert f"kudu_core {name}" in text or f" {name} " in text
    assert name in call("--help").out
    if name not in ("completion", "bench"):
        assert "--json" in text and "PATH" in text
    if name not in ("completion",):
        assert "--debug" in text or name == "completion"
