"""The real client against our HTTP server: protocol B3 under each fault; counts, ranges, forks."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.objects.api import Existing, Replaced
from kudu_core.objects.client import open_store
from kudu_core.objects.clients.after_fork import ClientThreads
from kudu_core.objects.repeating import RepeatingStore
from tests.objects.test_contract import body, id_of, together
from tests.support.objects.fates import Fate, Rule
from tests.support.objects.memory import StepClock, put_id_of
from tests.support.objects.server import BUCKET, StoreServer

ROOT = Path(__file__).resolve().parents[2]
PUT = frozenset({"put"})
SOON = {"timeout": "400ms"}
MISSING = [
    (fate, how) for fate in ("refused", "lost", "late") for how in ("500", "503", "reset", "hang")
] + [("conflict", "500"), ("busy", "500"), ("slow", "500")]


def opened(
    server: StoreServer, clock: Any = None, deadline_s: float = 60.0, **options: object
) -> RepeatingStore:
    given = server.options(client_options=SOON) | options
    url = f"{server.url}/folder"
    return open_store(url, given, put_id_of=put_id_of, clock=clock or StepClock(), deadline_s=deadline_s)


def there(server: StoreServer, path: str) -> bytes:
    return server.memory.objects[f"folder/{path}"].data


# -- protocol B3


@pytest.mark.parametrize(("fate", "how"), MISSING)
def test_our_put_is_ours(server: StoreServer, fate: Fate, how: Any) -> None:
    server.fates.rules.append(Rule(fate, ops=PUT, how=how, seconds=0.6 if how == "hang" else 0.05))
    mine = body("mine")
    assert opened(server).put_if_absent("log/1", mine, id_of(mine)) is None
    server.land_late()
    assert there(server, "log/1") == mine


@pytest.mark.parametrize(("fate", "how"), MISSING)
def test_our_replacement_is_ours(server: StoreServer, fate: Fate, how: Any) -> None:
    server.memory.store("folder/TABLE", body("old"))
    store, mine, next_ = opened(server), body("mine"), body("next")
    version = store.read_versioned("TABLE", 100)[1]
    server.fates.rules.append(Rule(fate, ops=PUT, how=how, seconds=0.6 if how == "hang" else 0.05))
    new = store.replace_if("TABLE", mine, version, id_of(mine))
    assert store.read_versioned("TABLE", 100) == (mine, new)
    store.replace_if("TABLE", next_, new, id_of(next_))
    server.land_late()
    assert there(server, "TABLE") == next_


@pytest.mark.parametrize("fate", ["refused", "lost", "late", "conflict", "busy", None])
def test_anothers_object_is_anothers(server: StoreServer, fate: Fate | None) -> None:
    other, mine = body("other"), body("mine")
    server.memory.store("folder/log/1", other)
    store = opened(server)
    version = store.read_versioned("log/1", 100)[1]
    if fate is not None:
        server.fates.rules += [Rule(fate, ops=PUT, nth=1), Rule(fate, ops=PUT, nth=3)]
    assert store.put_if_absent("log/1", mine, id_of(mine)) == Existing(id_of(other), other)
    newer = body("newer")
    server.memory.store("folder/log/1", newer)
    with pytest.raises(Replaced) as raised:
        store.replace_if("log/1", mine, version, id_of(mine))
    assert raised.value.found == Existing(id_of(newer), newer)
    server.land_late()
    assert there(server, "log/1") == newer


def test_all_of_it_from_the_environment(s3: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an endpoint without TLS; nothing is in ``storage_options``."""
    given = s3.options()
    for name in ("endpoint", "access_key_id", "secret_access_key", "region"):
        monkeypatch.setenv(f"AWS_{name.upper()}", str(given[name]))
    store = open_store(s3.url, put_id_of=put_id_of, clock=StepClock(), deadline_s=5.0)
    store.put("x", b"1")
    assert store.read_bytes("x", 1) == b"1" == s3.memory.objects["x"].data
    monkeypatch.setenv("AWS_ENDPOINT", "https://127.0.0.1:1")
    with pytest.raises(kc.StoreUnavailable):
        open_store(s3.url, put_id_of=put_id_of, clock=StepClock(), deadline_s=1.0).put("x", b"1")


def test_overtaken(server: StoreServer) -> None:
    other, mine = body("other"), body("mine")
    server.fates.rules.append(Rule("overtaken", ops=PUT, data=other))
    # The rule's write goes to the path that the server knows, folder and all.
    assert opened(server).put_if_absent("log/1", mine, id_of(mine)) == Existing(id_of(other), other)


def test_the_clients_own_repetition_would_lie(s3: StoreServer) -> None:
    """Why it is off: with obstore's own, another's conflict is reported about our own, stored object."""
    import obstore
    from obstore.exceptions import AlreadyExistsError
    from obstore.store import S3Store

    s3.fates.rules.append(Rule("lost", ops=PUT))
    store = S3Store(BUCKET, client_options={"allow_http": True}, **s3.options())  # type: ignore[arg-type]
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "log/1", b"mine", mode="create")
    assert s3.memory.objects["log/1"].data == b"mine"


@pytest.mark.parametrize("op", ["put", "get", "delete", "list"])
@pytest.mark.parametrize("fate", ["refused", "lost", "late", "busy"])
def test_other_calls_bear_it_too(server: StoreServer, fate: Fate, op: Any) -> None:
    server.memory.store("folder/a", b"there")
    server.fates.rules.append(Rule(fate, ops=frozenset({op}), how="reset"))
    store = opened(server)
    store.put("b", b"new")
    store.delete_many(["a", "missing"])
    assert store.read_bytes("b", 10) == b"new"
    assert store.read_ranges("b", [(1, 2)]) == [b"ew"]
    assert [each.name for each in store.entries("")] == ["b"]
    assert store.counts()["repeated"] >= 1


def test_an_answer_that_breaks_off_is_read_again(server: StoreServer) -> None:
    data = random.Random(3).randbytes(200_000)
    server.memory.store("folder/a", data)
    server.fates.rules += [Rule("short", ops=frozenset({"get"}), nth=n) for n in (1, 2)]
    store = opened(server)
    assert store.read_bytes("a", 1 << 20) == data
    assert store.read_ranges("a", [(0, 150_000)]) == [data[:150_000]]
    assert store.counts()["repeated"] == 2


def test_a_burst_of_503(server: StoreServer) -> None:
    server.fates.rules.append(Rule("busy", times=7))
    clock = StepClock()
    mine = body("mine")
    assert opened(server, clock).put_if_absent("a", mine, id_of(mine)) is None
    assert len(clock.slept) == 7 and sum(clock.slept) < 8


def test_the_deadline(server: StoreServer) -> None:
    server.fates.rules.append(Rule("refused", ops=PUT, times=1000))
    store, mine = opened(server, deadline_s=15.0), body("mine")
    told = r"PUT log/1: no answer in [\d.]+ s, asked \d+ times; the last time: 500 Int.*may or may not"
    with pytest.raises(kc.StoreUnavailable, match=told) as raised:
        store.put_if_absent("log/1", mine, id_of(mine))
    assert raised.value.unknown
    server.fates.rules.clear()
    assert store.put_if_absent("log/1", mine, id_of(mine)) is None, "and goes on when the store does"


def test_threads_under_chance(server: StoreServer, seed: int, long: bool) -> None:
    """Racing writers of numbered objects, and of one counter; every number has one owner, who was told so."""
    rng = random.Random(seed)
    server.fates.rng = rng
    for fate in ("refused", "lost", "late", "conflict", "busy"):
        how = rng.choice(["500", "503", "reset"])
        rule = Rule(fate, ops=PUT, probability=0.06, how=how, after=3)  # type: ignore[arg-type]
        server.fates.rules.append(rule)
    server.memory.store("folder/n", body("0"))
    owned: list[dict[int, bytes]] = [{} for _ in range(4)]
    in_doubt: list[int] = []
    rounds = 60 if long else 10

    def work(number: int) -> None:
        store = opened(server, deadline_s=600)
        for n in range(rounds):
            mine = body(f"{number} {n}")
            if store.put_if_absent(f"log/{n}", mine, id_of(mine)) is None:
                owned[number][n] = mine
            while True:
                data, version = store.read_versioned("n", 100)
                made = body(str(int(data[16:].rstrip(b".")) + 1))
                try:
                    store.replace_if("n", made, version, id_of(made))
                    break
                except Replaced as error:
                    in_doubt.append(error.unknown)

    together(4, work)
    server.land_late()
    told = {n: data for each in owned for n, data in each.items()}
    assert sum(map(len, owned)) == len(told) == rounds, "each number once"
    assert all(there(server, f"log/{n}") == data for n, data in told.items())
    # One that was put, its answer lost, and replaced by another before its writer looked, was made again.
    assert 0 <= int(there(server, "n")[16:].rstrip(b".")) - 4 * rounds <= sum(in_doubt)


# -- the rest


def test_listings_of_several_pages(server: StoreServer) -> None:
    server.page = 7
    names = [f"d/{n:03}" for n in range(40)]
    for name in names:
        server.memory.store(f"folder/{name}", b"x")
    assert [each.name for each in opened(server).entries("d")] == names


def test_a_put_of_any_size_is_one_request(server: StoreServer) -> None:
    """In parts it would be no single act, and under a condition impossible."""
    data = random.Random(6).randbytes(20 << 20)
    store = opened(server, client_options={})
    store.put("a", data)
    assert store.put_if_absent("b", data, id_of(data)) is None
    assert [each.split()[0] for each in server.seen] == ["PUT", "PUT"]
    assert there(server, "a") == there(server, "b") == data


def test_deletes_of_many(server: StoreServer) -> None:
    names = [f"d/{n}" for n in range(1200)]
    for name in names[::2]:
        server.memory.store(f"folder/{name}", b"x")
    store = opened(server)
    store.delete_many(names)
    assert not server.memory.objects
    if server.speaks == "s3":
        assert store.counts()["requests_delete"] == len(server.seen) == 2


def test_counts(server: StoreServer) -> None:
    store, mine = opened(server), body(length=100)
    before = store.counts()
    assert set(before.values()) == {0}
    store.put_if_absent("a", mine, id_of(mine))
    store.read_bytes("a", 100)
    store.read_ranges("a", [(0, 10), (20, 10)])
    store.entries("")
    store.delete_many(["a"])
    now = store.counts()
    assert [now[f"requests_{kind}"] for kind in ("put", "get", "list", "delete")] == [1, 2, 1, 1]
    assert (now["bytes_put"], now["bytes_get"], now["repeated"]) == (100, 100 + 30, 0)
    assert len(server.seen) == 5, "and these are the requests that arrived"


def test_ranges_are_fetched_in_few_requests(server: StoreServer) -> None:
    data = random.Random(4).randbytes(20 << 20)
    server.memory.store("folder/a", data)
    store = opened(server, client_options={})
    wanted = [(n * 2000, 1000) for n in range(100)]  # half of it is wanted
    wanted += [(1 << 20, 900 << 10), (3 << 20, 17 << 20)]
    assert store.read_ranges("a", wanted) == [data[a : a + n] for a, n in wanted]
    assert store.counts()["requests_get"] == len(server.seen) == 3
    assert store.counts()["bytes_get"] <= 1.25 * sum(n for _, n in wanted)


@pytest.mark.parametrize("when", ["before", "after", "after, anew"])
def test_a_fork(s3: StoreServer, when: str) -> None:
    """obstore would wait in the child for threads that are the parent's: for ever.  In a process of its own,
    which has asked nothing yet."""
    program = f"""
import os, signal, sys
import kudu_core as kc
from kudu_core.common.run.clock import Clock
from kudu_core.objects.client import open_store
def opened():
    options = {s3.options()!r}
    return open_store("s3://bucket/folder", options, put_id_of=lambda p, d: d, clock=Clock())
store = opened()
if {when!r} != "before":
    store.put("a", b"parent")
sys.stdout.flush()
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        if {when!r} == "after, anew":
            store = opened()
        store.put("b", b"child")
        print("done")
    except kc.NotSupported as error:
        print(error)
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
store.put("c", b"parent again")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ("done" in done.stdout) == (when == "before")
    assert ('start the child with "spawn"' in done.stdout) == (when != "before")
    assert "folder/c" in s3.memory.objects


def test_a_fork_without_the_guard_hangs(s3: StoreServer) -> None:
    """Or the guard is for nothing: then take it away."""
    store = opened(s3)
    store.put("a", b"parent")
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest has a handler, which would never run
            signal.alarm(2)
            ClientThreads.dead = False
            store.put("b", b"child")
        finally:
            os._exit(0)  # also after an error: the child must not run the tests that follow
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
