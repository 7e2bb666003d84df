"""The page of a table, its numbers, its partitions and its indexes, by commands."""

from __future__ import annotations

import threading
import urllib.request
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.web import server
from tests.cli.conftest import Call


def test_report(call: Call, orders: str, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    assert call("report", orders, "-o", output).out == f"{output}\n"
    assert output.read_text().startswith("<!DOCTYPE html>")
    told = call("report", orders, "--json").document
    with kc.open_table(orders) as table:
        assert told["tablets"] == table.report().data.to_json()["tablets"]


def test_metrics(call: Call, orders: str) -> None:
    assert "\nkudu_core_tablets{" in call("metrics", orders).out
    with kc.open_table(orders) as table:
        assert call("metrics", orders, "--json").document.keys() == table.metrics().keys()


def test_serve_answers_until_it_is_ended(call: Call, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked by another thread, which then ends it, as Ctrl-C would."""
    found: list[int] = []
    run = server.PageServer.run

    def asked(self: server.PageServer) -> None:
        def ask() -> None:
            try:
                with urllib.request.urlopen(f"{self.url}health", timeout=30) as answer:
                    found.append(answer.status)
            finally:
                self.close()

        thread = threading.Thread(target=ask)
        thread.start()
        run(self)
        thread.join()

    monkeypatch.setattr(server.PageServer, "run", asked)
    assert call("serve", orders, "--port", 0, "--json").document["url"].startswith("http://127.0.0.1:")
    assert found == [200]


def test_partitions_and_indexes(call: Call, orders: str) -> None:
    before = call("scan", orders, "--order", "key", "--json").out
    assert call("repartition", orders, "--hash", "customer=3", "--json").document["timestamp"] > 0
    assert call("index", orders, "by_amount", "--columns", "amount", "--json").document == {
        "by_amount": ["amount"]
    }
    with kc.open_table(orders) as table:
        assert len(table.partitions.partitions) == 3 and list(table.indexes) == ["by_amount"]
    assert call("scan", orders, "--order", "key", "--json").out == before
    assert call("index", orders, "by_amount", "--drop", "--json").document == {}
    assert "--columns, or dropped" in call("index", orders, "x", code=2).err
