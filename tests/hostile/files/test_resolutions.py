"""Resolutions of a distributed write that lie: names lead nowhere else, and what a commit believes of ids
is looked up in the table of today."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

import kudu_core as kc
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.resolve import resolve
from kudu_core.table.runs.resolution import Resolution
from tests.support.guard import at_most, within
from tests.support.hostile.forge import MEMORY, encoded, places
from tests.support.hostile.lies import NAMES, NUMBERS, SECONDS, Lied, data_of, make
from tests.support.hostile.links import aged, world
from tests.support.inside import handle_of

CASES, LONG_CASES = 14, 2000


def staged_job(path: Path) -> tuple[jobs.Job, list[Any], list[Resolution]]:
    """A distributed write that was staged and resolved: inserts, and changes of files and of memory."""
    with kc.open_table(path, "rw") as table:
        columns = [("k", "int64"), ("v", "string")]
        job = jobs.begin(handle_of(table), "upsert", columns)
    runs: list[Any] = []
    for number, first in enumerate((0, 100)):
        stager = jobs.stager(job, f"p{number}-a0")
        keys = list(range(first, first + 99))
        rows = {"k": pa.array(keys, pa.int64()), "v": pa.array(["job"] * 99)}
        stager.append(pa.record_batch(rows, pa.schema([("k", pa.int64()), ("v", pa.string())])))
        runs += stager.finish()
    with kc.open_table(path) as table:
        return job, runs, resolve(handle_of(table), job, jobs.form_of(job), runs)


IDS_OF_RESOLUTIONS = frozenset(
    ("tablet", "ordinal", "schema_version", "cut", "seen", "rowsets", "deltas", "by_key", "id", "counts")
)


def resolution_lies(found: list[Resolution]) -> Iterator[tuple[str, list[bytes]]]:
    told = [one.to_bytes() for one in found]
    for which, data in enumerate(told):
        value = json.loads(data)
        for path in places(value):
            member = value
            for name in path:
                member = member[name]
            for lie in (*NAMES, "../JOB", "HEARTBEAT") if isinstance(member, str) else NUMBERS:
                if isinstance(member, str) or IDS_OF_RESOLUTIONS.intersection(map(str, path)):
                    changed = copy.deepcopy(value)
                    parent = changed
                    for name in path[:-1]:
                        parent = parent[name]
                    parent[path[-1]] = lie
                    yield (
                        f"{which}: {path} = {lie!r:.40}",
                        [*told[:which], encoded(changed), *told[which + 1 :]],
                    )


def test_resolutions_that_lie(tmp_path: Path, seed: int, long: bool) -> None:
    """Names lead nowhere else; what a commit believes of ids is looked up in the table of today."""
    for name in ("made", "place"):
        (tmp_path / name).mkdir()
    sound = tmp_path / "made" / "t"
    make(sound)
    job, runs, found = staged_job(sound)
    assert len(found) == 2
    place = Lied(tmp_path / "place", sound)
    cases = [("as they are", [one.to_bytes() for one in found])]
    forged = list(resolution_lies(found))
    assert len(forged) > 200
    random.Random(seed).shuffle(forged)
    outcomes: Counter[str] = Counter()
    for what, told in cases + forged[: LONG_CASES if long else CASES]:
        place.fresh()
        before, data = aged(place.outside), data_of(place.path)
        try:
            with within(SECONDS), at_most(MEMORY):
                outcomes[commit(place.path, job, runs, told)] += 1
        except BaseException as error:
            error.add_note(what)
            raise
        assert world(place.outside) == before, what
        assert not data - data_of(place.path), what
    assert outcomes["committed"] and outcomes["Corruption"], outcomes


def commit(path: Path, job: jobs.Job, runs: list[Any], told: list[bytes]) -> str:
    said = "committed"
    table = kc.open_table(path, "rw")
    try:
        jobs.commit_job(job, runs, handle_of(table), [Resolution.from_bytes(data) for data in told])
        assert table.scan(where=[("v", "=", "job")]).count() == 198
    except (kc.KuduError, OSError) as error:
        said = type(error).__name__
    with suppress(kc.KuduError, OSError):
        table.close()
    with suppress(kc.KuduError, OSError), kc.open_table(path, "rw") as again:
        again.scan().to_table()
    return said
