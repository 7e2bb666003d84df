"""The page over HTTP: live, for reading alone, and for nobody who comes by another name."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.web.server import PageServer, is_ours, page_server
from tests.support.page.reported import table_of_everything
from tests.support.tables import Make


@contextmanager
def served(table: kc.Table, refresh_s: float = 0.1) -> Iterator[PageServer]:
    with page_server(table, port=0, refresh_s=refresh_s) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server
        finally:
            server.close()
            thread.join()


def ask(
    server: PageServer, path: str, method: str = "GET", host: str | None = "localhost"
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_page_numbers_metrics_and_health(make: Make) -> None:
    table = table_of_everything(make)
    with served(table) as server:
        status, headers, body = ask(server, "/")
        assert status == 200 and body.startswith(b"<!DOCTYPE html>") and b'data-live="0.1"' in body
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store" and headers["x-content-type-options"] == "nosniff"
        _, _, content = ask(server, "/content")
        assert content.startswith(b"<section") and b"<script" not in content
        _, _, data = ask(server, "/data.json")
        assert json.loads(data)["tablets"][0]["rows_stored"] == 403
        _, headers, told = ask(server, "/metrics")
        values = dict(re.findall(r"^kudu_core_(\w+)\{[^}]*\} (\S+)$", told.decode(), re.M))
        assert values["rowsets"] == "4" and told.decode().count("# TYPE") > 30
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        status, _, health = ask(server, "/health")
        assert status == 200
        assert json.loads(health) == {
            "ok": True, "mode": "rw", "epoch": table.report().data.epoch, "timestamp": table.timestamp,
            "refresh_lag_s": 0.0, "unreplayed": None, "error": None,
        }  # fmt: skip
        assert ask(server, "/etc/passwd")[0] == 404


def test_a_reader_shows_what_the_writer_has_written_since(make: Make, path: Path) -> None:
    table = make(durability="sync")
    table.insert({"k": [1]})
    with kc.open_table(path) as reader, served(reader) as server:
        assert json.loads(ask(server, "/data.json")[2])["tablets"][0]["rows_stored"] == 1
        table.insert({"k": [2]})
        threading.Event().wait(0.15)  # what is shown may be so old
        assert json.loads(ask(server, "/data.json")[2])["tablets"][0]["rows_stored"] == 2
        table.flush()
        assert re.search(rb"^kudu_core_rowsets\{.*\} 1$", ask(server, "/metrics")[2], re.M)
        table.insert({"k": [3]})
        health = json.loads(ask(server, "/health")[2])
        assert health["timestamp"] == table.timestamp and 0 <= health["refresh_lag_s"] < 60


def test_what_is_shown_is_made_once_for_all_who_ask(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from kudu_core.web import live_page

    made = []
    usual = live_page.report_of
    monkeypatch.setattr(live_page, "report_of", lambda handle: made.append(1) or usual(handle))
    with served(make(), refresh_s=3600) as server:
        for path in ("/", "/content", "/data.json", "/"):
            assert ask(server, path)[0] == 200
    assert made == [1]


def test_a_path_is_a_label_whatever_its_characters(make: Make, tmp_path: Path) -> None:
    with served(make(at=tmp_path / 'a"b\\c\nd')) as server:
        lines = ask(server, "/metrics")[2].decode().splitlines()
        line = re.compile(r'# (HELP|TYPE) .+|\w+\{table="[^"]*a\\"b\\\\c\\nd"(,\w+="[^"]*")*\} [-\d.e+]+')
        assert len(lines) > 20 and all(map(line.fullmatch, lines))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_nothing_but_reading_is_answered(make: Make, method: str) -> None:
    with served(make()) as server:
        status, headers, _ = ask(server, "/", method)
        assert status == 405 and headers["allow"] == "GET, HEAD"
        status, headers, body = ask(server, "/health", "HEAD")
        assert status == 200 and not body and int(headers["content-length"]) > 50
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
            raw.sendall(b"HEAD /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert b"".join(iter(partial(raw.recv, 65_536), b"")).endswith(b"\r\n\r\n")


def test_another_host_name_is_refused(make: Make) -> None:
    with served(make()) as server:
        others = "evil.example", f"evil.example:{server.port}", "localhost.evil.example", "192.168.0.9"
        for host in (*others, "", None):
            assert ask(server, "/data.json", host=host)[0] == 421, host
        for host in ("localhost", f"127.0.0.1:{server.port}", "[::1]:80", "LOCALHOST"):
            assert ask(server, "/health", host=host)[0] == 200, host


def test_names_and_addresses_of_other_servers() -> None:
    assert is_ours("table.lan:80", "0.0.0.0", {"table.lan"}) and not is_ours("table.lan", "0.0.0.0", ())
    assert is_ours("10.0.0.7", "0.0.0.0", ()) and is_ours("[fe80::1]", "::", ())
    assert not is_ours("10.0.0.7", "localhost", ()) and not is_ours("[::1", "127.0.0.1", ())


def test_a_table_that_cannot_be_read_is_told_and_not_shown(make: Make, path: Path) -> None:
    make().insert({"k": [1]})
    with kc.open_table(path) as reader, served(reader) as server:
        reader.close()
        status, _, body = ask(server, "/health")
        assert status == 503 and not json.loads(body)["ok"] and "was closed" in json.loads(body)["error"]
        status, headers, body = ask(server, "/")
        assert status == 503 and headers["content-type"].startswith("text/plain") and b"was closed" in body


def test_serve_opens_the_table_and_ends_when_interrupted(make: Make, path: Path) -> None:
    make(durability="sync").insert({"k": [1]})
    seen = []

    def ready(url: str) -> None:
        seen.append(url)
        raise KeyboardInterrupt  # as Ctrl-C at any time after

    kc.serve(path, port=0, ready=ready)
    assert seen[0].startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    "wrong", [{"port": -1}, {"port": 65_536}, {"port": "80"}, {"refresh_s": 0}, {"refresh_s": "x"}]
)
def test_what_cannot_be_is_refused(make: Make, wrong: dict[str, object]) -> None:
    with pytest.raises(kc.InvalidArgument, match=next(iter(wrong))):
        kc.serve(make(), **wrong)
