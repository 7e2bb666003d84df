"""``kudu_core.check_store``: whether a store keeps what the protocol of tables rests on
(``docs/protocol-objects.md``).

Some that speak S3 do not: two writers who race for a name both win, or a replacement under a condition
overwrites another's.  That loses data long after, so it is looked for before.  What is found is proof; that
nothing is found is none, but the worse a store, the sooner it shows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.gates import Flag
from kudu_core.common.run.pool import Pool
from kudu_core.errors import Corruption, InvalidArgument, StoreDenied, StoreError, StoreUnavailable
from kudu_core.objects.api import Existing, Replaced
from kudu_core.objects.client import open_store
from kudu_core.objects.urls import parse

if TYPE_CHECKING:
    from kudu_core.objects.api import ObjectStore

_ID_BYTES = 16
_NAMES_EACH = 8
"""Names that each thread races for in one round: more would only wait for each other."""
_DEADLINE_S = 20.0
_LARGE = 1 << 20
_LIMIT = 2 << 20

VISIBLE = "what was put is read at once, whole"
ABSENT = "a put if absent replaces nothing"
RACE = "of writers who race for a name one wins, and all are told whose it is"
REPLACE = "a replacement fails if another came between"
COUNTER = "of replacements none is lost"
RANGES = "ranges are what they say"
LIST = "a listing names what is there, with sizes"
DELETE = "what was deleted is gone, and its name is free"


@dataclass(frozen=True)
class StoreReport:
    """What ``check_store`` found.

    >>> print(kc.StoreReport("s3://bucket", {}, races=800, replacements=300, requests={}))
    s3://bucket: 800 races, 300 replacements, sound as far as was seen

    Attributes
    ----------
    url
        What was checked.
    broken
        Each rule that the store breaks, and how that showed; empty if it was sound.
    races, replacements
        How many names were raced for, and how many replacements were made under a condition.
    requests
        Counts of requests and bytes by kind.
    """

    url: str
    broken: dict[str, str]
    races: int
    replacements: int
    requests: dict[str, int]

    @property
    def is_sound(self) -> bool:
        """Whether no rule was seen broken."""
        return not self.broken

    def __str__(self) -> str:
        head = f"{self.url}: {self.races} races, {self.replacements} replacements, "
        if self.is_sound:
            return head + "sound as far as was seen"
        told = [f"* {rule}: {how}" for rule, how in self.broken.items()]
        return "\n".join([head + "NOT SAFE for tables; broken rules:", *told])


class _Broken(Exception):
    """A rule, and how it showed that it is broken."""


def check_store(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    seconds: float = 3.0,
    threads: int = 16,
    _clock: Clock | None = None,
) -> StoreReport:
    """Check whether an object store keeps the promises on which tables rest, and name those that it breaks.

    Threads race for names and replace one object under conditions; objects are read whole and in ranges,
    listed and deleted.  All of it in a new folder below the URL, which is empty again afterwards.  What is
    found is proof; that nothing is found is none: a longer check finds more.

    >>> kc.check_store("s3://bucket/folder", {"region": "eu-central-1"}).broken  # doctest: +SKIP
    {}

    Parameters
    ----------
    url
        `s3://`, `gs://`, `az://`, `abfss://` or `hdfs://`.
    storage_options
        The client's keys: `access_key_id`, `secret_access_key`, `endpoint`, `region`, ...; without them it
        asks the environment, profiles and the machine's role.
    seconds
        How long the races take.  3 is the short form; a store to be trusted with data deserves minutes.
    threads
        How many race.

    Raises
    ------
    StoreDenied, StoreUnavailable, StoreError
        Nothing can be said of the store: it refuses the credentials, or does not answer, or there is no such
        bucket.
    InvalidArgument
        The URL or an option is none.
    NotSupported
        The client is not installed, or this process is the child of a fork.
    """
    if not 1 <= threads <= 256 or not 0 < seconds <= 86_400:
        raise InvalidArgument(f"threads is 1 to 256 and seconds above 0, not {threads!r} and {seconds!r}")
    place, clock = parse(url), _clock or Clock()
    folder = f"{place}/check-{os.urandom(6).hex()}"
    store = open_store(folder, storage_options, put_id_of=put_id_of, clock=clock, deadline_s=_DEADLINE_S)
    return check(store, str(place), clock, threads=threads, seconds=seconds)


def put_id_of(path: str, data: bytes) -> bytes | None:
    """Of the objects here: their first bytes."""
    return data[:_ID_BYTES] if len(data) >= _ID_BYTES else None


def check(store: ObjectStore, url: str, clock: Clock, *, threads: int, seconds: float) -> StoreReport:
    """Check a store whose root is an empty folder of its own, and empty that again.

    ``put_id_of`` is the store's.  The races take ``seconds``, the rest a few dozen requests.  Errors of the
    store that say nothing of its rules pass through.
    """
    races = _Races(store, clock, threads, seconds)
    checks: list[tuple[str, Callable[[], None]]] = [
        (VISIBLE, lambda: _check_visible(store)),
        (ABSENT, lambda: _check_absent(store)),
        (REPLACE, lambda: _check_replace(store)),
        (RANGES, lambda: _check_ranges(store)),
        (LIST, lambda: _check_list(store)),
        (DELETE, lambda: _check_delete(store)),
        (RACE, races.for_names),
        (COUNTER, races.of_replacements),
    ]
    broken: dict[str, str] = {}
    store.put("begin", _body())  # no bucket, no credentials: not the store's fault, and told as it is
    try:
        for rule, run in checks:
            try:
                run()
            except StoreDenied:
                raise
            except StoreUnavailable as error:
                store.put("begin", _body())  # or it is gone, and nothing can be said of it
                broken[rule] = str(error)
            except (_Broken, StoreError, Replaced, Corruption, FileNotFoundError) as error:
                broken[rule] = str(error)
    finally:
        left = _tidied(store, races)
    if left:
        broken.setdefault(DELETE, left)
    return StoreReport(url, broken, races.names, races.replacements, store.counts())


def _check_visible(store: ObjectStore) -> None:
    for number in range(5):
        path = f"visible/{number}"
        # Asked for before it is there: who remembers that it was missing hides it from readers.
        _expect_missing(store, path, "before it was put")
        data = _body(_LARGE if number == 0 else 100)
        store.put(path, data)
        if store.read_bytes(path, _LIMIT) != data:
            raise _Broken(f"{path} is not what was put")
        again = _body()
        store.put(path, again)
        if store.read_bytes(path, _LIMIT) != again:
            raise _Broken(f"{path} is not what was put the second time")


def _check_absent(store: ObjectStore) -> None:
    mine, other = _body(), _body()
    if store.put_if_absent("absent", mine, _id(mine)) is not None:
        raise _Broken("an object is there that nobody has put")
    if store.put_if_absent("absent", other, _id(other)) != Existing(_id(mine), mine):
        raise _Broken("a second put if absent was accepted")
    if store.read_bytes("absent", _LIMIT) != mine:
        raise _Broken("a second put if absent was refused, and has overwritten the first")


def _check_replace(store: ObjectStore) -> None:
    one, two, three = _body(), _body(), _body()
    store.put("replace", one)
    first = store.read_versioned("replace", _LIMIT)[1]
    second = store.replace_if("replace", two, first, _id(two))
    if second == first:
        raise _Broken("an object with other bytes has the same version")
    if store.read_versioned("replace", _LIMIT) != (two, second):
        raise _Broken("after a replacement the object or its version is another")
    try:
        store.replace_if("replace", three, first, _id(three))
    except Replaced:
        pass
    else:
        raise _Broken("a replacement of a version that is gone was accepted")
    if store.read_bytes("replace", _LIMIT) != two:
        raise _Broken("a replacement was refused, and has overwritten the object")
    try:
        store.replace_if("replace-nothing", three, second, _id(three))
    except (FileNotFoundError, Replaced):
        return
    raise _Broken("a replacement of an object that is not there was accepted")


def _check_ranges(store: ObjectStore) -> None:
    data = os.urandom(_LARGE)
    store.put("ranges", data)
    wanted = [(0, 1), (17, 1000), (700_000, 5), (_LARGE - 10, 10), (_LARGE - 5, 100), (_LARGE, 10)]
    for (offset, length), found in zip(wanted, store.read_ranges("ranges", wanted), strict=True):
        if found != data[offset : offset + length]:
            raise _Broken(f"of {length} bytes at {offset} came {len(found)}, or others")


def _check_list(store: ObjectStore) -> None:
    sizes = {f"list/{number:02}": 20 + number for number in range(12)} | {"list/a/deep": 30}
    for path, size in sizes.items():
        store.put(path, _body(size))
    store.put("list2/other", _body())
    found = {each.name: each.size for each in store.entries("list")}
    if found != sizes:
        missing, strange = sorted(sizes.keys() - found.keys()), sorted(found.keys() - sizes.keys())
        raise _Broken(f"missing {missing[:3]}, strange {strange[:3]}, or other sizes")


def _check_delete(store: ObjectStore) -> None:
    names = [f"delete/{number}" for number in range(5)]
    for path in names:
        store.put(path, _body())
    store.delete_many([*names, "delete/missing"])
    for path in names:
        _expect_missing(store, path, "after it was deleted")
    mine = _body()
    if store.put_if_absent(names[0], mine, _id(mine)) is not None:
        raise _Broken("the name of an object that was deleted is not free")
    if store.read_bytes(names[0], _LIMIT) != mine:
        raise _Broken("an object that was put under the name of a deleted one is another")


class _Races:
    """``names`` and ``replacements`` count what was done."""

    def __init__(self, store: ObjectStore, clock: Clock, threads: int, seconds: float) -> None:
        self.names = self.replacements = 0
        self._store, self._clock, self._threads = store, clock, threads
        self._seconds = seconds / 2  # of the race for names, and again of replacements

    def for_names(self) -> None:
        until_s = self._clock.monotonic_s() + self._seconds
        while not self.names or self._clock.monotonic_s() < until_s:
            names = [f"race/{self.names + n}" for n in range(_NAMES_EACH)]
            bodies = [[_body() for _ in names] for _ in range(self._threads)]
            answers: list[list[Existing | None]] = [[] for _ in range(self._threads)]

            def put(number: int) -> None:
                # All threads have ended before the names change.
                for path, data in zip(names, bodies[number], strict=True):  # noqa: B023
                    answers[number].append(self._store.put_if_absent(path, data, _id(data)))  # noqa: B023

            _together(self._threads, put)
            for n, path in enumerate(names):
                _judge(path, self._store, [each[n] for each in bodies], [each[n] for each in answers])
            self.names += len(names)

    def of_replacements(self) -> None:
        """Threads that count up together: each reads the number, and replaces it by the next."""
        self._store.put("counter", _body() + b"0")
        until_s = self._clock.monotonic_s() + self._seconds
        done, in_doubt = [0] * self._threads, [0] * self._threads

        def count(number: int) -> None:
            while not done[number] or self._clock.monotonic_s() < until_s:
                data, version = self._store.read_versioned("counter", _LIMIT)
                made = _body() + str(_number_in(data) + 1).encode()
                try:
                    self._store.replace_if("counter", made, version, _id(made))
                except Replaced as error:
                    in_doubt[number] += error.unknown
                    if self._clock.monotonic_s() > until_s + self._seconds:
                        return  # too slow for so many threads; what was done is judged
                else:
                    done[number] += 1

        _together(self._threads, count)
        self.replacements = sum(done)
        counted = _number_in(self._store.read_bytes("counter", _LIMIT))
        if not self.replacements <= counted <= self.replacements + sum(in_doubt):
            raise _Broken(f"{self.replacements} were acknowledged, and the number is {counted}")


def _judge(path: str, store: ObjectStore, bodies: list[bytes], answers: list[Existing | None]) -> None:
    """Who was told that the name is his, against what is there."""
    winners = [data for data, answer in zip(bodies, answers, strict=True) if answer is None]
    there = store.read_bytes(path, _LIMIT)
    if len(winners) != 1:
        raise _Broken(f"{len(winners)} of {len(bodies)} writers were told that {path} is theirs")
    if there != winners[0]:
        raise _Broken(f"{path} is not what the winner has put")
    if any(answer is not None and answer.data != there for answer in answers):
        raise _Broken(f"a writer who lost {path} was shown another object than is there")


def _together(threads: int, call: Callable[[int], None]) -> None:
    """Make a call in so many threads at once; the first error of one is raised when all have ended."""
    all_there = Flag()

    def run(number: int) -> None:
        all_there.wait()
        call(number)

    with Pool(threads, "kudu-core-check") as pool:
        try:
            tasks = [pool.submit(partial(run, number)) for number in range(threads)]
        finally:
            all_there.set()
        for task in tasks:
            task.wait()
    for task in tasks:
        task.result()


def _tidied(store: ObjectStore, races: _Races) -> str | None:
    """Delete all that was put, also what no listing names; what is left after that, for people."""
    known = [f"race/{n}" for n in range(races.names)]
    store.delete_many([*sorted({each.name for each in store.entries("")} | {*known, "begin", "counter"})])
    left = [each.name for each in store.entries("")]
    return f"{len(left)} objects are still listed, {left[0]} among them" if left else None


def _expect_missing(store: ObjectStore, path: str, when: str) -> None:
    try:
        store.read_bytes(path, _LIMIT)
    except FileNotFoundError:
        return
    raise _Broken(f"{path} was read {when}")


def _body(size: int = 100) -> bytes:
    """Bytes like no others, of which the first are a put id."""
    return os.urandom(size)


def _id(data: bytes) -> bytes:
    return data[:_ID_BYTES]


def _number_in(data: bytes) -> int:
    return int(data[100:])


__all__ = ["StoreReport", "check", "check_store"]
