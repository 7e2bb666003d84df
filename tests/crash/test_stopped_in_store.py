"""Processes that write to a table in a store, stopped for longer than every grace and then continued: what
they were told is there, they do no harm, and readers beside them see all of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kudu_core as kc
from tests.support.objects.server import StoreServer
from tests.support.objects.tables import SCHEMA

ROOT = Path(__file__).resolve().parents[2]
GRACE_S = 0.5
WITHIN_S = 120.0
WRITER = f"""
import contextlib, itertools, json, sys
import kudu_core as kc
from kudu_core.objects import object_lease
from kudu_core.table.lifecycle.in_store import store_home
from kudu_core.wal.objects import object_log

object_lease.RENEW_S, object_lease.EXPIRES_S, object_lease.LOOK_S = 0.2, {GRACE_S}, 0.1
object_log.CHECKPOINT_OBJECTS = store_home.CLOSE_OBJECTS = 5
url, options, me = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
numbers = itertools.count(me * 1_000_000)
while True:
    try:
        table = kc.open_table(url, "rw", timeout_s=60, storage_options=options)
        print("opened", flush=True)
        for round in itertools.count(1):
            for n in itertools.islice(numbers, 5):
                table.upsert([{{"k": n, "v": n}}])
                print(n, flush=True)
            table.flush()
            if round % 3 == 0:
                table.compact(full=True)
                table.gc()
    except (kc.Fenced, kc.Poisoned, kc.Locked) as error:
        print(type(error).__name__, flush=True)
        with contextlib.suppress(kc.Fenced):
            table.close()
"""


class Writer:
    """A process; ``told``: the rows that were acknowledged to it.  A thread reads what it says."""

    def __init__(self, server: StoreServer, me: int) -> None:
        arguments = [f"{server.url}/t", json.dumps(server.options()), str(me)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.told: list[int] = []
        self.said: list[str] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word = line.strip()
            if word.isdigit():
                self.told.append(int(word))
            else:
                self.said.append(word)

    def writes_on(self, rows: int) -> None:
        """Wait until so many more rows were acknowledged."""
        wanted = len(self.told) + rows
        until(lambda: len(self.told) >= wanted or self.process.poll() is not None)
        assert self.process.poll() is None

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WITHIN_S)
        self._thread.join(WITHIN_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def until(what: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WITHIN_S
    while not what():
        assert time.monotonic() < end_s
        time.sleep(0.02)


@pytest.fixture
def writers() -> Iterator[tuple[StoreServer, list[Writer]]]:
    with StoreServer("s3") as server:
        options = {"maintenance": "manual", "file_grace_s": GRACE_S}
        where = server.options()
        with kc.create_table(f"{server.url}/t", SCHEMA, "k", options=options, storage_options=where):
            pass
        made: list[Writer] = []
        yield server, made
        for writer in made:
            writer.kill()


@pytest.mark.timeout(600)
def test_writers_that_are_stopped_and_go_on(writers: tuple[StoreServer, list[Writer]], long: bool) -> None:
    server, made = writers
    made += [Writer(server, 1), Writer(server, 2)]
    url, options = f"{server.url}/t", server.options()
    over = threading.Event()
    problems: list[BaseException] = []

    def follow() -> None:
        """A reader sees what was acknowledged before it looked, and what it has seen stays."""
        try:
            with kc.open_table(url, storage_options=options) as reader:
                seen: set[int] = set()
                while not over.is_set():
                    told = {n for writer in made for n in list(writer.told)}
                    reader.refresh()
                    found = set(reader.scan(["k"]).to_table()["k"].to_pylist())
                    assert told | seen <= found, sorted((told | seen) - found)[:5]
                    seen = found
        except BaseException as error:  # noqa: BLE001  told below
            problems.append(error)

    readers = [threading.Thread(target=follow) for _ in range(2)]
    for reader in readers:
        reader.start()
    until(lambda: any(writer.told for writer in made))
    writing, other = sorted(made, key=lambda writer: not writer.told)
    for _ in range(12 if long else 3):
        writing.writes_on(20)
        writing.stop()
        other.writes_on(30)  # its lease has expired, and what it has left is deleted meanwhile
        before = len(writing.said)
        writing.go_on()
        until(lambda: len(writing.said) > before)  # noqa: B023
        assert writing.said[before] in ("Fenced", "Poisoned")
        writing, other = other, writing
    over.set()
    for reader in readers:
        reader.join(WITHIN_S)
    assert not problems, problems
    for writer in made:
        writer.kill()
    told = sorted(n for writer in made for n in writer.told)
    with kc.open_table(url, "rw", storage_options=options) as table:
        found = table.scan(order="key").to_table()
        keys = found["k"].to_pylist()
        assert found["v"].to_pylist() == keys
        assert set(told) <= set(keys)
        assert len(keys) <= len(told) + 4 * (12 if long else 3) + 2, "but for calls that were not answered"
        assert not table.verify().foreign
