"""How objects are files on HDFS: over a stand-in whose requests can be refused, lose their answers, or let
something else happen first."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import kudu_core as kc
from kudu_core.objects.api import ALWAYS, Replaced, Unknown, Unmet
from kudu_core.objects.clients.after_fork import ClientThreads
from kudu_core.objects.clients.hdfs_names import begun_as
from kudu_core.objects.clients.hdfs_requests import HdfsRequests
from kudu_core.objects.urls import parse
from tests.objects.test_contract import body, id_of
from tests.support.objects.hdfs_hooks import LOST, failing, once, opened, replaced
from tests.support.objects.local_hdfs import LocalHdfs, nothing
from tests.support.objects.memory import StepClock, client

DAY_S = 24 * 60 * 60


# -- a put -------------------------------------------------------------------------------------------------


def test_nothing_is_seen_before_it_is_whole(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    seen = []

    def look(name: str, *paths: str) -> None:
        if name in ("write", "hsync", "close", "rename"):
            other = opened(LocalHdfs(hdfs.folder))
            seen.append((name, [each.name for each in other.list("")]))

    hdfs.before = look
    requests.put("a", b"x" * (5 << 20), None)
    assert seen == [("write", []), ("write", []), ("hsync", []), ("close", []), ("rename", [])]
    assert [each.name for each in requests.list("")] == ["a"] and hdfs.files() == ["/t/a", "/t/~tmp"]
    requests.put("empty", b"", None)
    assert len(hdfs.synced) == 1, "nothing to be synced"


def test_files_that_cannot_be_synced(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    """Those with erasure coding."""
    hdfs.before = once("hsync", failing(NotImplementedError("hsync of erasure coded files")))
    requests.put("a", b"x", None)
    assert requests.get("a", 1)[0] == b"x"


def test_who_loses_leaves_nothing(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    version = requests.put("a", b"one", None)
    with pytest.raises(Unmet):
        requests.put("a", b"two", None)
    hdfs.before = once("rename", lambda: opened(hdfs).put("a", b"three", version))
    with pytest.raises(Unmet):
        requests.put("a", b"four", version)
    assert requests.get("a", 10)[0] == b"three"
    life = begun_as(b"one")
    assert hdfs.files() == ["/t/a", f"/t/a~versions/{life}-{1:020}", "/t/~tmp"]


def test_a_folder_that_goes_is_made_again(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    requests.put("f/other", b"", None)
    hdfs.before = once("rename", lambda: opened(hdfs).delete(["f/other"]))
    requests.put("f/a", b"x", None)
    assert requests.get("f/a", 1)[0] == b"x"
    times = 3

    def vanish(name: str, *paths: str) -> None:
        nonlocal times
        if name == "mkdirs" and times:
            times -= 1
            hdfs.place_of(paths[0]).rmdir()

    hdfs.after = vanish
    requests.put("e/a", b"x", None)
    times = 100
    with pytest.raises(Unknown, match="goes as soon as it is made"):
        requests.put("g/a", b"x", None)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["create", "write", "hsync", "close", "rename", "list_status", "read"])
def test_an_answer_that_is_lost(hdfs: LocalHdfs, requests: HdfsRequests, what: str, when: str) -> None:
    """Of each request, once it was applied or not: the call has one answer, and the object is there once."""
    store, one, two = client(requests), body("1"), body("2")
    setattr(hdfs, when, once(what, failing(LOST)))
    assert store.put_if_absent("f/a", one, id_of(one)) is None
    version = store.read_versioned("f/a", 100)[1]
    setattr(hdfs, when, once(what, failing(LOST)))
    store.replace_if("f/a", two, version, id_of(two))
    assert store.read_bytes("f/a", 100) == two
    assert store.counts()["repeated"] >= 1
    with pytest.raises(Replaced):
        store.replace_if("f/a", one, version, id_of(one))
    store.delete_many(["f/a"])
    assert store.entries("") == []


@pytest.mark.parametrize("what", ["create", "rename"])
def test_a_request_that_the_client_repeats_itself(
    hdfs: LocalHdfs, requests: HdfsRequests, what: str
) -> None:
    """The answer is that to the second one, which finds what the first one has done."""

    def again(name: str, *paths: str) -> None:
        if name == what:
            hdfs.after = nothing
            getattr(hdfs, what)(*paths, *((False,) if what == "rename" else ()))

    store, one, two = client(requests), body("1"), body("2")
    hdfs.after = again
    with pytest.raises(Unknown, match=r"twice|renamed"):
        requests.put("b", one, None)
    hdfs.after = again
    assert store.put_if_absent("a", one, id_of(one)) is None
    hdfs.after = again
    version = store.replace_if("a", two, store.read_versioned("a", 100)[1], id_of(two))
    assert store.read_versioned("a", 100) == (two, version)
    hdfs.after = again
    store.put("a", one)
    assert store.read_bytes("a", 100) == one


# -- deleting ----------------------------------------------------------------------------------------------


def test_a_deletion_that_is_cut_short(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    requests.put("f/a", b"first", None)
    data = replaced(requests, 3, "f/a")
    hdfs.before = once("delete", failing(LOST), "~versions")
    with pytest.raises(Unknown):
        requests.delete(["f/a"])
    assert data and len(hdfs.files()) > 3
    assert requests.list("") == []
    with pytest.raises(FileNotFoundError):
        requests.get("f/a", None)
    with pytest.raises(FileNotFoundError):
        requests.get_ranges("f/a", [(0, 1)])
    with pytest.raises(FileNotFoundError):
        requests.put("f/a", b"x", "1-" + begun_as(b"first"))
    version = requests.put("f/a", b"second", None)
    assert requests.get("f/a", 6) == (b"second", version)
    with pytest.raises(kc.Corruption, match="longer than 5"):
        requests.get("f/a", 5)
    assert [each.size for each in requests.list("f")] == [6]
    requests.put("f/a", b"third", version)
    assert len(hdfs.files()) == 3, "the first replacement takes what was left"


def test_a_deletion_takes_nothing_that_comes_after_it(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    requests.put("f/a", body("old"), None)
    replaced(requests, 3, "f/a")
    newest: list[bytes] = []

    def anew() -> None:
        other = opened(hdfs)
        other.put("f/a", body("new"), None)
        newest.append(replaced(other, 2, "f/a"))

    hdfs.after = once("delete", anew)
    requests.delete(["f/a"])
    assert requests.get("f/a", None)[0] == newest[0]


def test_folders_go_with_what_was_in_them(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    for path in ("d/e/f/1", "d/e/f/2", "d/g", "top"):
        requests.put(path, b"", None)
    requests.delete(["d/e/f/1"])
    assert hdfs.place_of("/t/d/e/f").exists()
    requests.delete(["d/e/f/2"])
    assert not hdfs.place_of("/t/d/e").exists() and hdfs.place_of("/t/d").exists()
    requests.delete(["d/g", "top"])
    assert hdfs.files() == ["/t/~tmp"], "and the root stays"


def test_the_root_stays(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    hdfs.mkdirs("/t/d", create_parent=True)
    requests.delete(["d/a"])
    assert hdfs.files() == ["/t"]


def test_no_object_is_taken_for_a_folder(requests: HdfsRequests) -> None:
    requests.put("a", b"x", None)
    requests.delete(["a/b", "a/b/c"])
    assert requests.get("a", 1)[0] == b"x"
    requests.put("f/a", b"x", None)
    requests.delete(["f"])
    assert requests.get("f/a", 1)[0] == b"x"


def test_a_put_without_a_condition_is_never_unmet(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    hdfs.before = once("rename", failing(FileExistsError("rename destination /t/a already exists")))
    with pytest.raises(kc.StoreError, match="refuses a"):
        requests.put("a", b"x", ALWAYS)
    assert hdfs.files() == ["/t/~tmp"]


def test_names_that_others_have(requests: HdfsRequests) -> None:
    """Here alone an object cannot have the name of another's folder."""
    requests.put("a", b"x", None)
    requests.put("f/a", b"x", None)
    for path in ("a/b", "f"):
        with pytest.raises(FileNotFoundError):
            requests.get(path, None)
        with pytest.raises(FileNotFoundError):
            requests.get_ranges(path, [(0, 1)])
        assert path == "f" or requests.list(path) == []
        with pytest.raises(kc.StoreError, match=r"hdfs://stand-in:8020 refuses"):
            requests.put(path, b"", ALWAYS)


# -- temporary files ---------------------------------------------------------------------------------------


@pytest.fixture(params=[0.0, 10.0 * DAY_S, -10.0 * DAY_S])
def skewed(request: pytest.FixtureRequest, hdfs: LocalHdfs) -> Iterator[LocalHdfs]:
    """The name node's clock is another than this machine's."""
    hdfs.ahead_s = request.param
    return hdfs


def test_old_temporary_files_go(skewed: LocalHdfs) -> None:
    for name, age in (("new", 0), ("young", DAY_S - 600), ("old", DAY_S + 600)):
        skewed.create(f"/t/~tmp/{name}").close()
        skewed.age(f"/t/~tmp/{name}", age)
    requests = opened(skewed)
    requests.delete(["a"])
    assert skewed.files() == ["/t/~tmp/new", "/t/~tmp/young"]
    skewed.age("/t/~tmp/new", 2 * DAY_S)
    requests.delete(["a"])
    assert len(skewed.files()) == 2, "once for each handle"
    opened(skewed).delete(["a"])
    assert skewed.files() == ["/t/~tmp/young"]


@pytest.mark.parametrize("what", ["create", "list_status"])
def test_tidying_up_fails_no_deletion(hdfs: LocalHdfs, requests: HdfsRequests, what: str) -> None:
    requests.put("a", b"", None)
    hdfs.create("/t/~tmp/1").close()
    hdfs.before = once(what, failing(LOST), "~tmp")
    requests.delete(["a"])
    assert requests.list("") == []


# -- requests ----------------------------------------------------------------------------------------------


def test_a_host_that_has_vanished(hdfs: LocalHdfs) -> None:
    """It never answers: the request ends all the same, and the next one has a new connection."""
    made, back = 0, threading.Event()

    def connect() -> LocalHdfs:
        nonlocal made
        made += 1
        return hdfs

    requests = HdfsRequests(parse("hdfs://stand-in:8020/t"), connect, request_s=0.2)
    requests.put("a", b"x", None)
    hdfs.before = once("read", back.wait)
    with pytest.raises(Unknown, match=r"no answer in 0\.2 s"):
        requests.get("a", None)
    assert requests.get("a", None)[0] == b"x" and made == 2
    back.set()
    store = client(requests, clock=StepClock(), deadline_s=2.0)
    hdfs.before = lambda *_: failing(LOST)()
    with pytest.raises(kc.StoreUnavailable, match=r"no answer .* Connection reset by peer"):
        store.read_bytes("a", 10)


def test_a_panic_of_the_client(hdfs: LocalHdfs) -> None:
    """It says nothing of the store, and ends no thread of ours."""

    class PanicException(BaseException):
        """As hdfs-native has it."""

    made: list[LocalHdfs] = []

    def connect() -> LocalHdfs:
        made.append(hdfs)
        return hdfs

    requests = HdfsRequests(parse("hdfs://stand-in:8020/t"), connect)
    requests.put("a", b"x", None)
    hdfs.before = once("read", failing(PanicException("there is no reactor running")))
    with pytest.raises(Unknown, match="there is no reactor running"):
        requests.get("a", None)
    assert requests.get("a", None)[0] == b"x" and len(made) == 2
    hdfs.before = once("read", failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        requests.get("a", None)


def test_more_bytes_may_take_longer(hdfs: LocalHdfs) -> None:
    requests = opened(hdfs, request_s=0.2)
    hdfs.before = once("close", lambda: threading.Event().wait(1.0))
    requests.put("a", b"x" * (8 << 20), None)
    assert requests.get_ranges("a", [(0, 1)]) == [b"x"]


def test_short_answers(
    hdfs: LocalHdfs, requests: HdfsRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests.put("a", b"0123456789", None)
    monkeypatch.setattr("tests.support.objects.local_hdfs.LocalReader.read", lambda self: b"0")
    with pytest.raises(Unknown, match="1 of 10 bytes arrived"):
        requests.get("a", None)
    monkeypatch.setattr("tests.support.objects.local_hdfs.LocalReader.read_range", lambda *_: b"0")
    with pytest.raises(Unknown, match="1 of 5 bytes arrived"):
        requests.get_ranges("a", [(0, 5)])


def test_counts(requests: HdfsRequests) -> None:
    version = requests.put("f/a", b"x" * 10, None)
    requests.put("f/a", b"x" * 3, version)
    requests.get("f/a", None)
    requests.get_ranges("f/a", [(0, 1), (1, 2)])
    requests.list("")
    requests.delete(["f/a", "f/b"])
    requests.tell_repeated()
    assert requests.counts() == {
        "requests_get": 2, "requests_put": 2, "requests_delete": 2, "requests_list": 3,
        "bytes_get": 6, "bytes_put": 13, "repeated": 1,
    }  # fmt: skip


def test_in_the_child_of_a_fork(requests: HdfsRequests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientThreads, "dead", True)
    for call in (lambda: requests.get("a", None), lambda: requests.list(""), lambda: requests.delete(["a"])):
        with pytest.raises(kc.NotSupported, match='start the child with "spawn"'):
            call()
    monkeypatch.setattr(ClientThreads, "dead", False)
    monkeypatch.setattr(ClientThreads, "used", False)
    requests.list("")
    assert ClientThreads.used
