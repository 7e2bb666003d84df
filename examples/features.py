"""A feature store: features for training as they were known at the time, and the same ones for serving.

    pip install duckdb
    python examples/features.py [--folder FOLDER] [--users 1000] [--updates 20] [--labels 5000]
    python examples/features.py --features features.parquet --labels-file labels.parquet

Two tables.  ``log`` has a row for each time at which the features of a user were computed (key: user, at);
``latest`` has the newest of each user, for serving.  A job adds to both, and may be repeated (``txn``).

*Training.*  Labels are (user, at, label).  Each is joined to the newest features that are not younger than it
(an ASOF join, by DuckDB over the table's dataset).  Joined to today's features instead, the model would learn
from what nobody knew then; how many labels that would concern is printed.

*The same training set again.*  The moment of the log at which a model was trained gets a name (``tag``).
Features that are corrected later change today's answer, and not that of the tag.

*Serving.*  ``get_many`` of the latest features, which are those that the join gives for now.

Files of your own: features with the columns user, at and any others; labels with user, at and label.  ``at``
is an integer or a timestamp, the same in both.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import kudu_core as kc

KEPT = {"history_retention_s": 7 * 86_400}
JOBS = 4
"""Calls that load the log, each with all features of a stretch of time."""


class Store:
    """Both tables, open for writing."""

    def __init__(self, folder: Path, schema: pa.Schema, held: ExitStack) -> None:
        def table(name: str, key: list[str]) -> kc.Table:
            made = kc.create_table(folder / name, schema, key, options=KEPT, exist_ok=True)
            return held.enter_context(made)

        self.log = table("log", ["user", "at"])
        self.latest = table("latest", ["user"])

    def add(self, rows: pa.Table, job: tuple[str, int]) -> bool:
        """Features of some users at some times.  Whether they are new: a job may run twice.

        Of the latest ones only newer rows replace older ones, so late data does no harm.
        """
        added = self.log.upsert(rows, txn=job)
        newest = self._newest(rows)
        merge = self.latest.merge(newest).when_matched(where=kc.new("at") > kc.old("at"))
        merge.when_not_matched_insert().execute(txn=job)
        return not added.deduplicated

    @staticmethod
    def _newest(rows: pa.Table) -> pa.Table:
        """Of each user the row with the largest ``at``: the last one, in order of user and time."""
        ordered = rows.sort_by([("user", "ascending"), ("at", "ascending")])
        users = ordered["user"].combine_chunks()
        last = pc.not_equal(users[:-1], users[1:])
        return ordered.filter(pa.concat_arrays([last, pa.array([True])]))

    def training_set(self, labels: pa.Table, at: Any = None) -> pa.Table:
        """The labels, each with the features that were known then; NULL where there were none."""
        log = self.log.to_dataset(at=at)  # noqa: F841  DuckDB sees it
        found = duckdb.sql("""
            SELECT l.*, f.* EXCLUDE ("user", "at"), f."at" AS known_at
            FROM labels l
            ASOF LEFT JOIN log f ON l."user" = f."user" AND l."at" >= f."at"
            ORDER BY l."user", l."at", l."label"
        """)
        assert found is not None
        return found.to_arrow_table()

    def serve(self, users: list[Any]) -> pa.Table:
        return self.latest.get_many(users)


# ---- data ----


def make_features(users: int, updates: int) -> pa.Table:
    """Made-up counters that grow, ``updates`` times for each user, at random times."""
    rng = np.random.default_rng(1)
    at = np.cumsum(rng.integers(1, 1_000_000, (users, updates)), axis=1)
    orders = np.cumsum(rng.integers(0, 4, (users, updates)), axis=1)
    spent = np.cumsum(rng.gamma(2.0, 10.0, (users, updates)), axis=1).round(2)
    return pa.table(
        {
            "user": np.repeat(np.arange(users), updates),
            "at": at.ravel(),
            "orders": orders.ravel(),
            "spent": spent.ravel(),
        }
    )


def make_labels(features: pa.Table, count: int) -> pa.Table:
    """Made-up labels of users at times between the first of all features and the last."""
    rng = np.random.default_rng(2)
    at = features["at"].cast(pa.int64()).to_numpy()
    users = features["user"].to_numpy()
    return pa.table(
        {
            "user": rng.choice(users, count),
            "at": rng.integers(at.min(), at.max(), count),
            "label": rng.integers(0, 2, count),
        }
    )


def slices(rows: pa.Table, count: int) -> list[pa.Table]:
    ordered = rows.sort_by("at")
    size = -(-len(ordered) // count)
    return [ordered.slice(at, size) for at in range(0, len(ordered), size)]


# ---- all of it ----


def run(store: Store, features: pa.Table, labels: pa.Table, done: Callable[[str], None]) -> None:
    for number, rows in enumerate(slices(features, JOBS)):
        store.add(rows, ("features", number))
    done(f"{store.log.count():,} rows of features of {store.latest.count():,} users")
    again = store.add(slices(features, JOBS)[-1], ("features", JOBS - 1))
    done(f"the last job ran twice: {'its rows came twice' if again else 'nothing happened'}")

    trained = store.training_set(labels)
    early = trained["known_at"].null_count
    done(f"{len(trained):,} labels joined to what was known then, {early:,} before anything was")
    newest = store.serve(labels["user"].to_pylist())["at"].combine_chunks()
    leaks = pc.sum(pc.greater(newest, labels["at"].combine_chunks())).as_py() or 0
    print(f"  joined to today's features {leaks:,} of them would know the future")

    name = f"trained-{len(store.log.tags()) + 1}"
    store.log.tag(name)
    store.log.update({"user": features["user"], "at": features["at"], **nulls_of(features)})
    changed = store.training_set(labels)
    same = store.training_set(labels, at=name).equals(trained)
    today = "as it was" if changed.equals(trained) else "another"
    done(f"features are corrected: the join of today is {today}")
    print(f"  that of {name} is {'as it was' if same else 'another'}")

    users = pc.unique(features["user"]).slice(0, 1000).to_pylist()
    begun = time.perf_counter()
    served = store.serve(users)
    took = time.perf_counter() - begun
    end = pc.max(features["at"]).as_py()
    values = {"user": users, "at": [end] * len(users), "label": [None] * len(users)}
    joined = store.training_set(pa.table(values, schema=labels.schema), at=name)
    agree = joined["known_at"].equals(served.sort_by("user")["at"])
    done(f"{len(users):,} users served in {took * 1e3:.1f} ms")
    print(f"  with {'the' if agree else 'NOT the'} features that the join gives for now")


def nulls_of(features: pa.Table) -> dict[str, pa.Array]:
    """A correction that shows: the first of the features is not known any more."""
    name = next(name for name in features.column_names if name not in ("user", "at"))
    return {name: pa.nulls(len(features), features.schema.field(name).type)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, help="keep the tables here")
    parser.add_argument("--users", type=int, default=1_000)
    parser.add_argument("--updates", type=int, default=20, help="rows of features of each user")
    parser.add_argument("--labels", type=int, default=5_000)
    parser.add_argument("--features", type=Path, help="Parquet: features of your own")
    parser.add_argument("--labels-file", type=Path, help="Parquet: labels of your own")
    given = parser.parse_args()

    folder = given.folder or Path(tempfile.mkdtemp(prefix="features-"))
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()

    def done(what: str) -> None:
        print(f"{time.perf_counter() - begun:7.2f} s  {what}", flush=True)

    try:
        made = make_features(given.users, given.updates)
        features = pq.read_table(given.features) if given.features else made
        made = make_labels(features, given.labels)
        labels = pq.read_table(given.labels_file) if given.labels_file else made
        with ExitStack() as held:
            run(Store(folder, features.schema, held), features, labels, done)
    finally:
        if given.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
