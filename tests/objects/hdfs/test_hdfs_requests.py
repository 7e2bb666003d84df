"""How objects are files on HDFS, and who wins a race: over a stand-in whose requests can be refused, lose
their answers, or let something else happen first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.objects.api import ALWAYS, Replaced, Unknown, Unmet
from kudu_core.objects.clients.after_fork import ClientThreads
from kudu_core.objects.clients.hdfs_names import begun_as
from kudu_core.objects.clients.hdfs_requests import KEPT, HdfsRequests
from kudu_core.objects.urls import parse
from tests.objects.test_contract import body, id_of
from tests.support.objects.local_hdfs import LocalHdfs, nothing
from tests.support.objects.memory import StepClock, client
from tests.support.threads import together

DAY_S = 24 * 60 * 60
LOST = OSError("Connection reset by peer (os error 104)")


@pytest.fixture
def hdfs(tmp_path: Path) -> LocalHdfs:
    return LocalHdfs(tmp_path / "hdfs")


def opened(hdfs: LocalHdfs, **how: float) -> HdfsRequests:
    return HdfsRequests(parse("hdfs://stand-in:8020/t"), lambda: hdfs, **how)


@pytest.fixture
def requests(hdfs: LocalHdfs) -> HdfsRequests:
    return opened(hdfs)


def once(name: str, act: Callable[[], object], where: str = "") -> Callable[..., None]:
    """A hook that acts at the first request of a name, of a path with ``where`` in it."""
    left = [act]

    def hook(asked: str, *paths: str) -> None:
        if asked == name and where in paths[-1] and left:
            left.pop()()

    return hook


def failing(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def replaced(requests: HdfsRequests, times: int, path: str = "a") -> bytes:
    """The object after so many replacements."""
    data, version = requests.get(path, None)
    for n in range(times):
        data = body(str(n))
        version = requests.put(path, data, version)
    return data


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

    def vanish(name: str, *paths: str) -> None:
        if name == "mkdirs":
            hdfs.place_of(paths[0]).rmdir()

    hdfs.after = vanish
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


# -- versions ----------------------------------------------------------------------------------------------


def test_old_versions_go(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    requests.put("a", b"first", None)
    data = replaced(requests, 3 * KEPT)
    assert requests.get("a", 100)[0] == data
    life = begun_as(b"first")
    numbers = range(2 * KEPT + 1, 3 * KEPT + 1)
    assert hdfs.files() == ["/t/a", *(f"/t/a~versions/{life}-{n:020}" for n in numbers), "/t/~tmp"]


def test_no_increment_is_lost_while_versions_go(requests: HdfsRequests) -> None:
    requests.put("n", b"0", None)
    lost = [0] * 8

    def count(number: int) -> None:
        for _ in range(8):
            while True:
                data, version = requests.get("n", 100)
                try:
                    requests.put("n", b"%d" % (int(data) + 1), version)
                except Unmet:
                    lost[number] += 1
                    continue
                break

    together(8, count)
    assert requests.get("n", 100)[0] == b"64"


@pytest.mark.parametrize("times", [KEPT, KEPT + 1, 3 * KEPT])
def test_who_comes_late_to_a_number_that_was_there(
    hdfs: LocalHdfs, requests: HdfsRequests, times: int
) -> None:
    """It may be free again; what is renamed to it is seen by nobody, and its writer is told so."""
    store, mine = client(requests), body("late")
    version = requests.put("a", body("0"), None)
    newest: list[bytes] = []
    hdfs.before = once("rename", lambda: newest.append(replaced(opened(hdfs), times)))
    with pytest.raises(Replaced) as raised:
        store.replace_if("a", mine, version, id_of(mine))
    assert raised.value.found.data == newest[0] and store.read_bytes("a", 100) == newest[0]
    assert raised.value.unknown == (times > KEPT)
    replaced(requests, 1)
    assert len(hdfs.files()) == 1 + min(times + 1, KEPT) + 1, "and it goes with the others"


@pytest.mark.parametrize("anew", ["not at all", "anew", "anew, replaced", "overwritten"])
@pytest.mark.parametrize("before", [0, 1, 5])
def test_who_comes_late_to_an_object_of_another_life(
    hdfs: LocalHdfs, requests: HdfsRequests, before: int, anew: str
) -> None:
    """Another writer has replaced the same version first; then the object was deleted.  So nobody may be told
    that the late replacement has succeeded, and nobody sees it."""
    store, mine = client(requests), body("late")
    requests.put("f/a", body("0"), None)
    replaced(requests, before, "f/a")
    version = requests.get("f/a", None)[1]

    def happen() -> None:
        other = opened(hdfs)
        replaced(other, 1, "f/a")
        if anew == "overwritten":
            other.put("f/a", body("new"), ALWAYS)
        else:
            other.delete(["f/a"])
        if anew.startswith("anew"):
            other.put("f/a", body("new"), None)
        if anew.endswith("replaced"):
            replaced(other, before, "f/a")

    hdfs.before = once("rename", happen)
    with pytest.raises((Replaced, FileNotFoundError)) as raised:
        store.replace_if("f/a", mine, version, id_of(mine))
    assert isinstance(raised.value, FileNotFoundError) == (anew == "not at all")
    if anew == "not at all":
        assert store.entries("") == [] and not any("versions" in each for each in hdfs.files())
    else:
        assert b"late" not in store.read_bytes("f/a", 100)
        replaced(requests, 1, "f/a")
        life = begun_as((hdfs.folder / "t" / "f" / "a").read_bytes())
        assert all(life in each for each in hdfs.files() if "versions" in each), "of this life alone"


def test_a_deletion_meanwhile_shows_no_old_version(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    """Whichever request of the reading it comes after."""
    for n in range(4):
        requests.put("a", b"%d" % n, None)
        newest = replaced(requests, 3)
        asked = 0

        def delete(*_: str) -> None:
            nonlocal asked
            asked += 1
            if asked == n + 1:  # noqa: B023
                hdfs.after = nothing
                opened(hdfs).delete(["a"])

        hdfs.after = delete
        try:
            assert requests.get("a", None)[0] == newest and n > 1
        except FileNotFoundError:
            assert n < 2
        hdfs.after = nothing
        requests.delete(["a"])


def test_a_version_that_goes_while_it_is_read(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    requests.put("a", body(), None)
    replaced(requests, 1)
    newest: list[bytes] = []
    hdfs.before = once("read", lambda: newest.append(replaced(opened(hdfs), 2 * KEPT)), "~versions")
    assert requests.get("a", None)[0] == newest[0]

    def always(name: str, *paths: str) -> None:
        if name == "read" and "~versions" in paths[0]:
            hdfs.place_of(paths[0]).unlink(missing_ok=True)

    hdfs.before = always
    with pytest.raises(Unknown, match="faster than it can be read"):
        requests.get("a", None)


def test_ranges_and_limits_are_of_the_newest(requests: HdfsRequests) -> None:
    version = requests.put("a", b"x" * 100, None)
    version = requests.put("a", b"0123456789", version)
    assert requests.get("a", 10) == (b"0123456789", version), "version 0 is longer"
    assert requests.get_ranges("a", [(2, 3), (8, 5), (50, 1)]) == [b"234", b"89", b""]
    with pytest.raises(kc.Corruption, match="longer than 9"):
        requests.get("a", 9)
    requests.put("a", b"new", ALWAYS)
    assert requests.get("a", 10)[0] == b"new", "no condition, and so no version of before"
    assert requests.get_ranges("a", [(1, 9)]) == [b"ew"]
    with pytest.raises(kc.Corruption):
        requests.get("a", 2)


def test_a_put_of_the_same_bytes_again(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    requests.put("a", b"first", ALWAYS)
    replaced(requests, 2)
    requests.put("a", b"first", ALWAYS)
    assert requests.get("a", 10)[0] == b"first" and hdfs.files() == ["/t/a", "/t/~tmp"]


def test_a_listing_shows_the_newest_and_nothing_else(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    requests.put("f/a", b"x" * 100, None)
    hdfs.age("/t/f/a", 1000)
    version = requests.put("f/a", b"x" * 7, requests.get("f/a", None)[1])
    hdfs.age(f"/t/f/a~versions/{begun_as(b'x' * 100)}-{1:020}", 500)
    requests.put("f/a", b"x" * 8, version)
    requests.put("f/b", b"", None)
    for strange in ("/t/f/a~versions/strange", "/t/f/c~", "/t/f/g~versions/1", "/t/~tmp/1", "/t/f/~x/1"):
        hdfs.create(strange).close()
    found = requests.list("f")
    assert [(each.name, each.size) for each in found] == [("f/a", 8), ("f/b", 0)]
    assert abs(found[0].mtime_s - found[1].mtime_s) < 100
    assert requests.list("") == found and requests.list("f/a") == []
    requests.put("f/a", b"x" * 9, ALWAYS)
    assert requests.list("")[0].size == 9


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


def test_no_object_is_taken_for_a_folder(requests: HdfsRequests) -> None:
    requests.put("a", b"x", None)
    requests.delete(["a/b", "a/b/c"])
    assert requests.get("a", 1)[0] == b"x"
    requests.put("f/a", b"x", None)
    requests.delete(["f"])
    assert requests.get("f/a", 1)[0] == b"x"


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
