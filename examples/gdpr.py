"""To forget people: what a table has of them is told, deleted, and after that in no file any more.

    python examples/gdpr.py [--folder FOLDER] [--people 2000] [--orders 10000] [--forget 20]

Two tables, of people and of their orders; a backup of each; and requests to be forgotten, which come as
numbers of people.  In turn:

1. *Access.*  What is known of a person, past states of the row too (``history_of``).
2. *Erasure.*  The rows of all who asked are deleted, in each table as one change.  They are gone from the
   present, yet the past is readable, and the backups have it.
3. *Purge.*  History is cut, files are written anew without the rows, the log forgets what is in files, and a
   new backup takes the place of the old one.
4. *Audit.*  Every byte of every file is searched for the mail addresses of those who were forgotten.  So that
   this finds what is there, the column is stored as it is (``encoding="plain", compression="none"``), and
   files of backups are unpacked.  The search before the purge must find them.

Who was forgotten is remembered in ``requests``, which has numbers and times and nothing personal: a
restored backup from before is to be purged of them once more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import kudu_core as kc

PEOPLE = [
    kc.Column("person", pa.int64(), nullable=False),
    kc.Column("mail", pa.string(), encoding="plain", compression="none"),
    kc.Column("city", pa.string()),
]
ORDERS = [
    kc.Column("person", pa.int64(), nullable=False),
    kc.Column("number", pa.int64(), nullable=False),
    kc.Column("sent_to", pa.string(), encoding="plain", compression="none"),
    kc.Column("cents", pa.int64()),
]
TIME = pa.timestamp("us", "UTC")
REQUESTS = pa.schema([("person", pa.int64()), ("asked_at", TIME), ("purged_at", TIME)])
CITIES = ("oslo", "bern", "rome")
KEPT = {"history_retention_s": 30 * 86_400}
NOTHING_KEPT = {"history_retention_s": 0.0}


class Shop:
    """The tables, open for writing, and where their backups are."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        self.folder, self.backups = folder, folder / "backups"
        # A file that nothing names goes at once, not after the time that readers elsewhere might need.
        options = {**KEPT, "file_grace_s": 0.0}

        def table(name: str, schema: Any, key: Sequence[str], by: Sequence[Any] = ()) -> kc.Table:
            path = folder / name
            made = kc.create_table(path, schema, key, partition_by=by, options=options, exist_ok=True)
            return held.enter_context(made)

        self.people = table("people", PEOPLE, ["person"])
        self.orders = table("orders", ORDERS, ["person", "number"], [kc.HashPartition("person", 2)])
        self.requests = table("requests", REQUESTS, ["person"])

    @property
    def personal(self) -> tuple[kc.Table, kc.Table]:
        """The tables that have something of a person."""
        return self.people, self.orders


def mail(person: int) -> str:
    return f"person-{person:07}@example.org"


def fill(shop: Shop, people: int, orders: int) -> None:
    """Made-up people and orders; some people have moved since."""
    rng = np.random.default_rng(1)
    everybody = range(people)
    mails = [mail(person) for person in everybody]
    cities = [CITIES[person % len(CITIES)] for person in everybody]
    shop.people.insert({"person": list(everybody), "mail": mails, "city": cities})
    buyers = rng.integers(0, people, orders).tolist()
    shop.orders.insert(
        {
            "person": buyers,
            "number": list(range(orders)),
            "sent_to": [mails[buyer] for buyer in buyers],
            "cents": rng.integers(100, 10_000, orders),
        }
    )
    for table in shop.personal:
        table.flush()
    shop.people.update([{"person": person, "city": "paris"} for person in everybody[::5]])


# ---- the four steps ----


def known(shop: Shop, person: int) -> dict[str, Any]:
    """All that is known of a person, as JSON can have it; of the row itself all its versions."""
    versions = shop.people.history_of(person, ["mail", "city"]).to_pylist()
    orders = shop.orders.scan(key_range=((person,), (person + 1,)), order="key")
    return {
        "now": shop.people.get(person),
        "versions": [{"mail": row["mail"], "city": row["city"]} for row in versions],
        "orders": orders.to_pylist(),
    }


def erase(shop: Shop, persons: list[int]) -> dict[str, int]:
    """Rows that went, by table.  To ask again, or for somebody unknown, does no harm."""
    asked = datetime.now(UTC)
    shop.requests.insert(
        [{"person": person, "asked_at": asked} for person in persons], on_conflict="ignore"
    )
    return {
        Path(table.path).name: table.delete(where=[("person", "in", persons)]).deleted
        for table in shop.personal
    }


def purge(shop: Shop) -> None:
    """Nothing keeps what was deleted: neither history, nor files, nor the log, nor a backup."""
    for table in shop.personal:
        for tag in table.tags():
            table.untag(tag)  # a tag keeps its past for ever
        table.alter(options=NOTHING_KEPT)
        table.flush()
        table.compact(full=True)
        table.gc()
        table.alter(options=KEPT)
    back_up(shop)
    done = datetime.now(UTC)
    waiting = shop.requests.scan(["person"], where="purged_at IS NULL").to_pylist()
    shop.requests.update([{**row, "purged_at": done} for row in waiting])


def back_up(shop: Shop) -> None:
    """Full ones; the folder of those before goes when the new ones are there."""
    before = list(shop.backups.glob("*"))
    place = shop.backups / f"{time.time_ns()}"
    place.mkdir(parents=True)
    for table in shop.personal:
        table.backup(place / Path(table.path).name)
    for old in before:
        shutil.rmtree(old)


def unpacked(path: Path) -> bytes:
    """A file of a backup is compressed as a whole: its rows, as Arrow has them in memory."""
    with pa.OSFile(str(path)) as file:
        rows = pa.ipc.open_stream(file).read_all()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def holders(folder: Path, words: list[str]) -> dict[str, int]:
    """Files that have one of the words somewhere in their bytes, and how many of the words."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            text = unpacked(path) if path.suffix == ".arrow" else path.read_bytes()
            if count := sum(word.encode() in text for word in words):
                found[str(path.relative_to(folder))] = count
    return found


# ---- all of it ----


def run(shop: Shop, persons: list[int], done: Callable[[str], None]) -> None:
    words = [mail(person) for person in persons]
    first = persons[0]
    told = known(shop, first)
    done(f"of person {first}: {len(told['versions'])} versions, {len(told['orders'])} orders")
    print("  " + json.dumps(told)[:100] + " ...")

    before = shop.people.timestamp
    gone = erase(shop, persons)
    done(f"{len(persons)} people are erased: {gone['people']} rows of people, {gone['orders']} orders")
    still = shop.people.get(first, at=before) is not None
    there = holders(shop.folder, words)
    done(f"before the purge: the past {'has' if still else 'has not'} them, and so have {len(there)} files")

    purge(shop)
    done("history is cut, files are written anew, the backup is a new one")
    try:
        shop.people.get(first, at=before)
        print("  the past is still readable")
    except kc.SnapshotTooOld:
        print("  the past is not readable any more")
    left = holders(shop.folder, words)
    done(f"audit: {len(left)} files have one of the {len(words)} addresses")
    others = shop.people.count(), shop.orders.count()
    print(f"  {others[0]:,} people and {others[1]:,} orders are there, and in the backup")
    if left:
        raise SystemExit(f"these files still have them: {left}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, help="keep the tables here")
    parser.add_argument("--people", type=int, default=2_000)
    parser.add_argument("--orders", type=int, default=10_000)
    parser.add_argument("--forget", type=int, default=20, help="how many people ask to be forgotten")
    given = parser.parse_args()

    folder = given.folder or Path(tempfile.mkdtemp(prefix="gdpr-"))
    begun = time.perf_counter()

    def done(what: str) -> None:
        print(f"{time.perf_counter() - begun:7.2f} s  {what}", flush=True)

    try:
        with ExitStack() as held:
            shop = Shop(folder, held)
            if shop.people.count() == 0:
                fill(shop, given.people, given.orders)
                back_up(shop)
                done(f"{given.people:,} people and {given.orders:,} orders are there, and in a backup")
            everybody = shop.people.scan(["person"], order="key").to_table()["person"].to_pylist()
            run(shop, everybody[:: max(1, len(everybody) // given.forget)][: given.forget], done)
    finally:
        if given.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
