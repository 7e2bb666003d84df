"""Replacements under a condition on HDFS: numbered versions, and who comes late to one."""

from __future__ import annotations

import pytest

import kudu_core as kc
from kudu_core.objects.api import ALWAYS, Entry, Replaced, Unknown, Unmet
from kudu_core.objects.clients.hdfs_names import begun_as
from kudu_core.objects.clients.hdfs_requests import KEPT, HdfsRequests
from tests.objects.test_contract import body, id_of
from tests.support.objects.hdfs_hooks import once, opened, replaced
from tests.support.objects.local_hdfs import LocalHdfs, nothing
from tests.support.objects.memory import client
from tests.support.threads import together


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
    hdfs.age(f"/t/f/a~versions/{begun_as(b'x' * 100)}-{2:020}", 50)
    for strange in ("/t/f/a~versions/strange", "/t/f/c~", "/t/f/g~versions/1", "/t/~tmp/1", "/t/f/~x/1"):
        hdfs.create(strange).close()
    found = requests.list("f")
    assert [(each.name, each.size) for each in found] == [("f/a", 8), ("f/b", 0)]
    assert abs(found[0].mtime_s - found[1].mtime_s) < 100
    assert requests.list("") == found and requests.list("f/a") == []
    requests.put("f/a", b"x" * 9, ALWAYS)
    assert requests.list("")[0].size == 9


def test_a_listing_of_versions_of_one_moment(hdfs: LocalHdfs, requests: HdfsRequests) -> None:
    version = requests.put("a", b"x" * 9, None)
    for length in (8, 7, 6):
        version = requests.put("a", b"x" * length, version)
    hdfs.at_s = 1e9
    assert requests.list("") == [Entry("a", 6, 1e9)]
