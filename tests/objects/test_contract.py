"""What ``ObjectStore`` promises, of every store and every client that there is."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import kudu_core as kc
from kudu_core.objects.api import ALWAYS, Existing, Replaced, Unmet
from tests.support.objects.places import Place
from tests.support.threads import together


def body(text: str = "", length: int = 40) -> bytes:
    """Bytes with a put id of their own."""
    return (os.urandom(16) + text.encode()).ljust(length, b".")


def id_of(data: bytes) -> bytes:
    return data[:16]


# -- reading and writing


def test_what_was_put_is_read(place: Place) -> None:
    for path in ("a", "a-b/c_d/e=1.rows", "log/00000000000000000001", "x" * 200):
        data = body(path)
        place.store.put(path, data)
        assert place.store.read_bytes(path, 1000) == data
        place.store.put(path, data := body("again", 60))
        assert place.store.read_bytes(path, 60) == data


def test_buffers_of_all_kinds(place: Place) -> None:
    numbers = np.arange(5, dtype=np.int64)
    parts = [b"one", bytearray(b"two"), memoryview(b"three"), numbers, b"", np.empty(0, np.int32)]
    place.store.put("list", parts)
    assert place.store.read_bytes("list", 100) == b"onetwothree" + numbers.tobytes()
    place.store.put("array", numbers)
    assert place.store.read_bytes("array", 100) == numbers.tobytes()
    place.store.put("empty", b"")
    assert place.store.read_bytes("empty", 0) == b""


def test_what_is_not_there(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.store.read_bytes("nothing", 10)
    with pytest.raises(FileNotFoundError):
        place.store.read_versioned("no/thing", 10)
    with pytest.raises(FileNotFoundError):
        place.store.read_ranges("nothing", [(0, 1)])
    with pytest.raises(FileNotFoundError):
        place.store.replace_if("nothing", data := body(), '"0123456789abcdef"', id_of(data))
    with pytest.raises(FileNotFoundError):
        place.store.read_bytes("nothing", 10)


def test_longer_than_the_limit(place: Place) -> None:
    place.store.put("a", b"x" * 100)
    with pytest.raises(kc.Corruption, match=r"a at byte 99: .*longer than 99"):
        place.store.read_bytes("a", 99)


def test_ranges(place: Place) -> None:
    data = random.Random(1).randbytes(3 << 20)
    place.store.put("big", data)
    far = [(5, 10), (2 << 20, 1000), (7, 0), (100, 1 << 20), (0, 1), (len(data) - 3, 3), (6, 10), (5, 10)]
    assert place.store.read_ranges("big", far) == [data[a : a + n] for a, n in far]
    assert place.store.read_ranges("big", []) == []
    assert place.store.read_ranges("nothing", [(3, 0)]) == [b""], "nothing was asked for"


def test_ranges_beyond_the_end(place: Place) -> None:
    data = b"0123456789"
    place.store.put("a", data)
    beyond = [(8, 5), (0, 2), (10, 1), (4 << 20, 100)]
    assert place.store.read_ranges("a", beyond) == [b"89", b"01", b"", b""]
    assert place.store.read_ranges("a", [(20, 5)]) == [b""]


@pytest.mark.parametrize("ranges", [[(-1, 5)], [(0, 5), (1, -1)]])
def test_ranges_that_are_none(place: Place, ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(kc.InvalidArgument, match="no range"):
        place.store.read_ranges("a", ranges)


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", ".", "a/../b", "a b", "a?b", "a%20b", "\u00e9", "a" * 901, "a\n"]
)
def test_paths_that_are_none(place: Place, path: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: place.store.read_bytes(path, 1),
        lambda: place.store.read_ranges(path, [(0, 1)]),
        lambda: place.store.put(path, b""),
        lambda: place.store.put_if_absent(path, b"", b""),
        lambda: place.store.replace_if(path, b"", "v", b""),
        lambda: place.store.delete_many(["fine", path]),
    ]
    if path:
        calls.append(lambda: place.store.entries(path))
    for call in calls:
        with pytest.raises(kc.InvalidArgument, match="no path of an object"):
            call()


# -- conditions


def test_put_if_absent(place: Place) -> None:
    mine, other = body("mine"), body("other")
    assert place.store.put_if_absent("a", mine, id_of(mine)) is None
    assert place.store.put_if_absent("a", other, id_of(other)) == Existing(id_of(mine), mine)
    assert place.store.read_bytes("a", 100) == mine
    assert place.store.put_if_absent("a", mine, id_of(mine)) is None, "it is there: a repetition"
    place.requests.put("b", b"short", ALWAYS)
    assert place.store.put_if_absent("b", mine, id_of(mine)) == Existing(None, b"short")


def test_replace_if(place: Place) -> None:
    one, two, three = body("1"), body("2"), body("3")
    place.store.put("a", one)
    data, first = place.store.read_versioned("a", 100)
    assert data == one
    second = place.store.replace_if("a", two, first, id_of(two))
    assert second != first and place.store.read_versioned("a", 100) == (two, second)
    with pytest.raises(Replaced) as raised:
        place.store.replace_if("a", three, first, id_of(three))
    assert raised.value.found == Existing(id_of(two), two) and raised.value.version == second
    assert place.store.read_bytes("a", 100) == two
    assert place.store.replace_if("a", two, first, id_of(two)) == second, "it is there: a repetition"
    third = place.store.replace_if("a", three, second, id_of(three))
    assert place.store.read_versioned("a", 100) == (three, third)


def test_single_requests_say_no(place: Place) -> None:
    """Or everything above would rest on put ids alone."""
    version = place.requests.put("a", b"one", None)
    with pytest.raises(Unmet):
        place.requests.put("a", b"two", None)
    assert place.requests.put("a", b"three", version) != version
    with pytest.raises(Unmet):
        place.requests.put("a", b"four", version)
    assert place.requests.get("a", None)[0] == b"three"


def test_an_id_that_is_not_in_the_bytes(place: Place) -> None:
    data = body()
    with pytest.raises(kc.InternalError, match="put id"):
        place.store.put_if_absent("a", data, id_of(body()))
    with pytest.raises(kc.InternalError, match="put id"):
        place.store.replace_if("a", data, "v", id_of(body()))


def test_bytes_that_are_not_ours_under_our_id(place: Place) -> None:
    mine = body("mine")
    place.store.put("a", mine[:-3] + b"xyz")
    with pytest.raises(kc.Corruption, match="a at byte 37: these are not the bytes that were put"):
        place.store.put_if_absent("a", mine, id_of(mine))
    place.store.put("a", mine[:30])
    with pytest.raises(kc.Corruption, match=r"a at byte 30: .*30 of 40"):
        place.store.put_if_absent("a", mine, id_of(mine))


# -- deleting and listing


def test_delete_many(place: Place) -> None:
    names = [f"d/{number}" for number in range(30)]
    for name in names:
        place.store.put(name, b"x")
    place.store.put("e", b"x")
    place.store.delete_many(["d/missing", *names[:20], "no/folder/either"])
    assert [each.name for each in place.store.entries("d")] == sorted(names[20:])
    place.store.delete_many(names)
    place.store.delete_many(names)
    place.store.delete_many([])
    assert [each.name for each in place.store.entries("")] == ["e"]
    with pytest.raises(FileNotFoundError):
        place.store.read_bytes("d/3", 10)


def test_a_name_that_was_deleted_is_absent(place: Place) -> None:
    one, two = body("1"), body("2")
    assert place.store.put_if_absent("a", one, id_of(one)) is None
    place.store.delete_many(["a"])
    assert place.store.put_if_absent("a", two, id_of(two)) is None
    assert place.store.read_bytes("a", 100) == two


def test_entries(place: Place) -> None:
    sizes = {"log/1": 10, "log/2": 0, "log2/1": 20, "log/deep/er/x": 30, "TABLE": 5}
    for name, size in sizes.items():
        place.store.put(name, b"x" * size)
    assert {each.name: each.size for each in place.store.entries("")} == sizes
    found = place.store.entries("log")
    assert [(each.name, each.size) for each in found] == [("log/1", 10), ("log/2", 0), ("log/deep/er/x", 30)]
    assert place.store.entries("none") == [] and place.store.entries("log/1") == []
    times = [each.mtime_s for each in place.store.entries("")]
    assert max(times) - min(times) < 60 and min(times) > 9e8


# -- races


def test_one_wins_a_name(place: Place) -> None:
    for round_ in range(12):
        bodies = [body(str(number), 500) for number in range(8)]
        answers: list[Existing | None] = [None] * 8
        name = f"r/{round_}"

        def put(number: int) -> None:
            mine = bodies[number]  # noqa: B023  all threads have ended before it changes
            answers[number] = place.store.put_if_absent(name, mine, id_of(mine))  # noqa: B023

        together(8, put)
        there = place.store.read_bytes(name, 1000)
        assert [bodies[n] for n, answer in enumerate(answers) if answer is None] == [there]
        assert all(answer is None or answer.data == there for answer in answers)


def test_no_increment_is_lost(place: Place) -> None:
    place.store.put("n", body("0"))
    outcomes: Counter[str] = Counter()

    def add(number: int) -> None:
        for _ in range(6):
            while True:
                data, version = place.store.read_versioned("n", 1000)
                made = body(str(int(data[16:].rstrip(b".")) + 1))
                try:
                    place.store.replace_if("n", made, version, id_of(made))
                except Replaced:
                    outcomes["replaced"] += 1
                    continue
                break

    together(6, add)
    assert int(place.store.read_bytes("n", 1000)[16:].rstrip(b".")) == 36
