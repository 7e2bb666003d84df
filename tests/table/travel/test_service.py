"""The example of a service: workers over one table under load, and one of them is killed.

No acknowledged write is lost, every read is of a state that was, and the next worker writes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kudu_core as kc
from tests.support.processes import ROOT
from tests.support.threads import Run

if TYPE_CHECKING:
    import httpx
for needed in ("fastapi", "uvicorn", "httpx"):
    pytest.importorskip(needed, reason=f"{needed} is not installed: the service is not tested")
httpx = sys.modules["httpx"]

SCRIPT = ROOT / "examples" / "service.py"
LATE_S = 60.0
WRITERS, READERS = 3, 3


@contextmanager
def service(table: Path, workers: int) -> Iterator[str]:
    """Its URL.  At the end it is told to end, and does so in good order."""
    log = table.with_suffix(".log")
    arguments = ["--table", str(table), "--port", "0", "--workers", str(workers), "--refresh-s", "0.05"]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with log.open("w") as told:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *arguments],
            env={**os.environ, "PYTHONPATH": paths},
            stdout=told,
            stderr=told,
        )
    try:
        latest = time.monotonic() + LATE_S
        while log.read_text().count("Application startup complete") < workers:
            assert process.poll() is None and time.monotonic() < latest, log.read_text()
            time.sleep(0.02)
        yield re.findall(r"running on (http://\S+)", log.read_text())[0]
    except BaseException:
        print(log.read_text())
        raise
    finally:
        process.terminate()
        process.wait(LATE_S)
    assert process.returncode in (0, -signal.SIGTERM), log.read_text()
    assert "Traceback" not in log.read_text() and "ERROR" not in log.read_text(), log.read_text()
    assert not Path(f"{table}.writer").exists(), "it was the writer's"


def test_what_it_answers(tmp_path: Path) -> None:
    with service(tmp_path / "stock", workers=1) as url, httpx.Client(base_url=url) as client:
        nuts = {"pieces": 7, "price": "0.15", "counted_at": "2026-01-05T12:00:00Z"}
        first = client.put("/items/nut", json=nuts).json()
        assert first["inserted"] == 1
        assert client.put("/items/nut", json={"place": "A1", "pieces": None}).json()["updated"] == 1
        now = {"item": "nut", "place": "A1", **nuts, "pieces": None}
        assert client.get("/items/nut").json() == now
        assert client.get("/items/nut", params={"at": first["timestamp"]}).json() == {
            "item": "nut", "place": None, **nuts,
        }  # fmt: skip
        before = client.get("/items/nut", params={"at": "2026-01-01T00:00:00Z"})
        assert before.status_code == 404 and "x-timestamp" in before.headers

        many = [{"item": f"bolt{n}", "pieces": n, "price": n / 4} for n in range(9)]
        assert client.post("/items", json=many).json()["inserted"] == 9
        cheap = '[["pieces", ">", 2], ["price", "<", 1.6]]'
        found = client.get("/items", params={"where": cheap, "limit": 3})
        assert [(row["item"], row["price"]) for row in found.json()] == [
            ("bolt3", "0.75"), ("bolt4", "1.00"), ("bolt5", "1.25"),
        ]  # fmt: skip
        at_noon = '[["counted_at", "==", "2026-01-05T13:00:00+01:00"], ["price", "in", ["0.15"]]]'
        assert client.get("/items", params={"where": at_noon}).json() == [now]
        assert [client.delete("/items/nut").json()["deleted"] for _ in range(2)] == [1, 0]
        assert client.get("/state").json()["items"] == 9 and client.get("/items/nut").status_code == 404

        wrong: list[tuple[int, str, httpx.Response]] = [
            (400, "2 places", client.post("/items", json=[{"item": "a"}, {"item": "b", "price": 1.255}])),
            (409, "too_large", client.post("/items", json=[{"item": "a"}, {"item": "a" * 100_000}])),
            (422, "extra_forbidden", client.put("/items/a", json={"pieces": 1, "peices": 1})),
            (400, "no column 'nope'", client.get("/items", params={"where": '[["nope", "<", 1]]'})),
            (400, "column, operator, value", client.get("/items", params={"where": '{"pieces": 1}'})),
            (400, "type int64", client.get("/items", params={"where": '[["pieces", "<", "x"]]'})),
            (422, "limit", client.get("/items", params={"limit": 0})),
            (400, "neither a timestamp", client.get("/items", params={"at": "yesterday"})),
            (400, "has no time zone", client.get("/items", params={"at": "2026-01-05T12:00:00"})),
            (400, "lies after", client.get("/items", params={"at": "2111-01-01T00:00:00Z"})),
            (400, "no write has had", client.get("/items", params={"after": str(2**64 - 1)})),
        ]
        for status, sentence, answer in wrong:
            assert answer.status_code == status and sentence in answer.text, answer.text
        assert client.get("/items/a").status_code == 404, "all or nothing"


def client_of(url: str) -> httpx.Client:
    """Each of its requests is a new connection, which may be to any of the workers."""
    return httpx.Client(base_url=url, limits=httpx.Limits(max_keepalive_connections=0))


def sent(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
    """As clients of it do: what was not answered, or not now, is sent again."""
    latest = time.monotonic() + LATE_S
    while time.monotonic() < latest:
        try:
            answer = client.request(method, path, **more)
        except httpx.TransportError:
            pass  # the worker was killed
        else:
            if answer.status_code != 503:
                assert answer.is_success, answer.text
                return answer
            assert answer.headers["retry-after"] == "1"
        time.sleep(0.01)
    raise AssertionError(f"{method} {path} was never answered")


def writer_of(table: Path) -> int:
    """The process that has the lease."""
    with pytest.raises(kc.Locked) as locked:
        kc.open_table(table, "rw").close()
    assert locked.value.pid
    return locked.value.pid


def check(
    table: Path, acknowledged: list[dict[int, int]], seen: list[list[tuple[int, dict[str, int | None]]]]
) -> None:
    """History has all of it, at its time."""
    with kc.open_table(table, "rw") as after:
        for writer, numbers in enumerate(acknowledged):
            assert after.get(f"{writer} b")["pieces"] == max(numbers)
            for number, at in numbers.items():
                assert after.get(f"{writer} a", at=at)["pieces"] == number, "acknowledged, and lost"
        for at, found in (one for of_reader in seen for one in of_reader):
            for item, number in found.items():
                was = after.get(item, at=at)
                assert (was and was["pieces"]) == number, "no such state was"


def test_no_acknowledged_write_is_lost_and_every_read_is_of_a_state_that_was(tmp_path: Path) -> None:
    table = tmp_path / "stock"
    acknowledged: list[dict[int, int]] = [{} for _ in range(WRITERS)]
    """Of each writer: its numbers, and the timestamps that they were acknowledged with."""
    seen: list[list[tuple[int, dict[str, int | None]]]] = [[] for _ in range(READERS)]
    """Of each reader: timestamps, and what it was told of then."""
    killed: list[int] = []
    workers: set[int] = set()
    """The processes that have answered a read."""
    run = Run(3, {"written": 50, "read": 50, "written after": 30, "handed over": 1})

    def write(writer: int, url: str) -> None:
        """Two items that always have the same number, which only grows."""
        number = 0
        with client_of(url) as client:
            while run.goes_on():
                number += 1
                both = [{"item": f"{writer} {side}", "pieces": number} for side in "ab"]
                late = bool(killed)
                done = sent(client, "POST", "/items", json=both).json()["timestamp"]
                acknowledged[writer][number] = int(done)
                run.did("written after" if late else "written")
                own = sent(client, "GET", f"/items/{writer} a", params={"after": done})
                assert own.json()["pieces"] == number, "it sees what it wrote, through whatever worker"

    def read(reader: int, url: str) -> None:
        newest: dict[str, tuple[int, dict[str, int]]] = {}
        client, turn = client_of(url), 0
        while run.goes_on():
            turn += 1
            writer = (reader + turn) % WRITERS
            where = f'[["item", "in", ["{writer} a", "{writer} b"]]]'
            answer = sent(client, "GET", "/items", params={"where": where})
            at, by = int(answer.headers["x-timestamp"]), answer.headers["x-worker"]
            found = {row["item"]: row["pieces"] for row in answer.json()}
            assert len(set(found.values())) <= 1 and len(found) in (0, 2), f"half of a write: {found}"
            workers.add(int(by))
            before, known = newest.get(by, (0, {}))
            went = f"worker {by}: {before} {known}, then {at} {found}; killed: {killed}"
            assert at >= before, f"a worker does not go back: {went}"
            assert all(found.get(item, n) >= n for item, n in known.items())
            newest[by] = at, known | found
            seen[reader].append((at, {f"{writer} {side}": found.get(f"{writer} {side}") for side in "ab"}))
            run.did("read")
        client.close()

    def kill() -> None:
        while run.goes_on() and (run.counts.get("written", 0) < 60 or len(workers) < 3):
            time.sleep(0.01)
        first, writing = set(workers), writer_of(table)
        os.kill(writing, signal.SIGKILL)
        killed.append(writing)
        while run.goes_on():
            if run.counts.get("written after", 0) >= WRITERS + 1:
                assert writer_of(table) in first - {writing}, "one that was there took it at once"
                run.did("handed over")
                return
            time.sleep(0.01)

    with service(table, workers=3) as url:
        work = [partial(write, writer, url) for writer in range(WRITERS)]
        work += [partial(read, reader, url) for reader in range(READERS)]
        run.all(*work, kill)

    check(table, acknowledged, seen)


def test_a_writer_that_can_write_no_more_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that another worker becomes the writer, and this one is started again."""
    spec = importlib.util.spec_from_file_location("service", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "service", module)
    spec.loader.exec_module(module)

    class Failing:
        writes = True

        @property
        def table(self) -> kc.Table:
            raise kc.Poisoned("an fsync failed")

    monkeypatch.setattr(module, "worker", Failing(), raising=False)
    ended: list[int] = []
    usual = signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    try:

        async def put() -> httpx.Response:
            transport = httpx.ASGITransport(app=module.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                return await client.put("/items/nut", json={"pieces": 1})

        answer = asyncio.run(put())
    finally:
        signal.signal(signal.SIGTERM, usual)
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
    assert ended == [signal.SIGTERM]
