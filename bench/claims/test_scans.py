"""Claims of the design about scans, each beside what it is compared with; ``docs/claims.md`` has the figures.

No merge by key: rows of a table lie in eight overlapping row sets, a tenth of them changed since; the model
is ``models.Runs``, the same rows and changes as sorted runs in memory.  Reads of now cost no history: rounds
of updates whose past is kept; the model is ``models.Versions``.

KUDU_CORE_BENCH_ROWS=2000000 ci/bench.sh bench/claims
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from bench.claims.conftest import ROWS, pages_looked_at
from bench.claims.models import Runs, Versions

SETS, PAST = 8, 10
"""Row sets of the table; rounds of updates, each of a tenth of the rows."""
KEYS: dict[str, Callable[[np.ndarray], pa.Array]] = {
    "int64": pa.array,
    "string": lambda numbers: pc.binary_join_element_wise(
        "customer", pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 12, "0"), "-"
    ),
}


def parts() -> list[np.ndarray]:
    """Keys of each row set, in the order in which they come: all over the range of keys."""
    return np.array_split(np.random.default_rng(1).permutation(ROWS), SETS)


def changed() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    keys = rng.choice(ROWS, ROWS // 10, replace=False)
    return keys, rng.random(len(keys))


def expected() -> float:
    values = np.arange(ROWS) / 2
    keys, new = changed()
    values[keys] = new
    return float(values.sum())


def total(table: kc.Table, **how: Any) -> float:
    return float(sum(pc.sum(batch.column(0)).as_py() for batch in table.scan(["v"], **how)))


def pages_of_a_scan(table: kc.Table) -> int:
    """That a reader asks for which has just opened the table."""
    with kc.open_table(table.path) as reader:
        before = pages_looked_at(reader)
        total(reader)
        return pages_looked_at(reader) - before


def overlapping(make: Any, kind: str) -> kc.Table:
    table: kc.Table = make("t", {"k": kind, "v": "float64"}, "k")
    for some in parts():
        table.insert({"k": KEYS[kind](some), "v": some / 2})
        table.flush()
    keys, new = changed()
    table.update({"k": KEYS[kind](keys), "v": new})
    table.flush()
    assert table.stats()["rowsets"].to_pylist() == [SETS] and table.metrics()["height"] > SETS - 1
    return table


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.benchmark(group="sum of a column, eight overlapping sets, 10% changed")
def test_no_merge_by_key(make: Any, measure: Any, kind: str) -> None:
    """Again and again: values are unpacked, and the changes laid over them."""
    table = overlapping(make, kind)
    of_keys = table.scan(["k"]).explain().pages
    found = measure(lambda: total(table), pages=pages_of_a_scan(table), pages_of_keys=of_keys)
    assert np.isclose(found, expected())


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.benchmark(group="sum of a column, eight overlapping sets, 10% changed")
def test_no_merge_by_key_at_first(make: Any, benchmark: Any, kind: str) -> None:
    """By a reader that has just opened the table: all is read, unpacked and laid over."""
    table, readers = overlapping(make, kind), list[kc.Table]()

    def opened() -> tuple[tuple[kc.Table], dict[str, Any]]:
        readers.append(kc.open_table(table.path))
        return (readers[-1],), {}

    benchmark.extra_info |= {"rows": ROWS}
    assert np.isclose(benchmark.pedantic(total, setup=opened, rounds=5), expected())
    for reader in readers:
        reader.close()


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.benchmark(group="sum of a column, eight overlapping sets, 10% changed")
def test_merged_by_key(measure: Any, kind: str) -> None:
    runs = [(some := np.sort(part), some / 2) for part in parts()]
    keys, new = changed()
    order = np.argsort(keys)
    runs.append((keys[order], new[order]))
    model = Runs([KEYS[kind](some) for some, _ in runs], [pa.array(values) for _, values in runs])
    assert np.isclose(measure(model.sum_of_now, key_bytes=model.key_bytes), expected())


# ---- history ----


def rounds() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [
        (np.sort(rng.choice(ROWS, ROWS // 10, replace=False)), rng.random(ROWS // 10)) for _ in range(PAST)
    ]


def latest() -> np.ndarray:
    values = np.arange(ROWS) / 2
    for keys, new in rounds():
        values[keys] = new
    return values


def with_past(make: Any, *, compacted: bool) -> tuple[kc.Table, int]:
    """The table after all rounds, and a timestamp from before them."""
    table = make("t", {"k": "int64", "v": "float64"}, "k")
    first = table.insert({"k": np.arange(ROWS), "v": np.arange(ROWS) / 2}).timestamp
    table.flush()
    for keys, new in rounds():
        table.update({"k": keys, "v": new})
        table.flush()
    if compacted:
        table.compact(full=True)
    return table, first


@pytest.mark.parametrize("state", ["no past", "ten rounds, compacted", "ten rounds, as they came"])
@pytest.mark.benchmark(group="sum of a column now, ten rounds of 10% kept")
def test_now_costs_no_history(make: Any, measure: Any, state: str) -> None:
    if state == "no past":
        table = make("t", {"k": "int64", "v": "float64"}, "k")
        table.insert({"k": np.arange(ROWS), "v": latest()})
        table.flush()
    else:
        table, first = with_past(make, compacted="compacted" in state)
        assert np.isclose(total(table, at=first), np.sum(np.arange(ROWS) / 2))
    if state == "ten rounds, compacted":
        plain = make("plain", {"k": "int64", "v": "float64"}, "k")
        plain.insert({"k": np.arange(ROWS), "v": latest()})
        plain.flush()
        assert pages_of_a_scan(table) == pages_of_a_scan(plain)
    counts = {"pages": pages_of_a_scan(table), "history_bytes": int(table.metrics()["history_bytes"])}
    assert np.isclose(measure(lambda: total(table), **counts), latest().sum())


@pytest.mark.benchmark(group="sum of a column now, ten rounds of 10% kept")
def test_now_with_versions_in_the_key(measure: Any) -> None:
    made = rounds()
    keys, values = [np.arange(ROWS)], [np.arange(ROWS) / 2]
    model = Versions.of([*keys, *(k for k, _ in made)], [*values, *(v for _, v in made)])
    assert np.isclose(measure(model.sum_of_now, versions=len(model.keys)), latest().sum())


@pytest.mark.benchmark(group="sum of a column as it was before ten rounds")
def test_the_past(make: Any, measure: Any) -> None:
    table, first = with_past(make, compacted=True)
    assert np.isclose(measure(lambda: total(table, at=first)), np.sum(np.arange(ROWS) / 2))
