"""Ctrl-C by real signals, in the main thread, at random moments of a mix of public calls.

In a process of its own: a timer raises ``KeyboardInterrupt``, after intervals that are often very short.
After each interrupt nothing is left under way and the rows are those of a call that was applied or not; every
so often the table is closed and opened again.  Whatever hangs is shown by ``faulthandler``.  Beside it
``test_interrupts.py`` tries every place; here are those that no trace sees, inside of compiled code and of
system calls.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import python

DRIVER = """
    import faulthandler, random, shutil, signal, sys, time
    import pyarrow as pa, pyarrow.compute as pc
    import kudu_core as kc
    from tests.support.interrupts import assert_at_rest, poisoned, settle

    path, durability, maintenance = sys.argv[1:4]
    wanted, seed = map(int, sys.argv[4:])
    HANG_S, ROWS = 120, 60
    rng = random.Random(seed)
    SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
    options = {"durability": durability, "maintenance": maintenance, "ingest_threshold_rows": 200}
    table = kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 3), options=options)
    armed, interrupts, reopened, number, made = False, 0, 0, 0, 0

    def ctrl_c(*_):
        global armed
        if armed:  # once: what a finalizer swallows is not repeated
            armed = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, ctrl_c)

    def rows(count=ROWS):
        columns = {"k": list(range(count)), "v": [number] * count, "s": [str(number)] * count}
        return pa.table(columns, schema=SCHEMA)

    def next_number():
        global number
        number += 1

    def write(): next_number(); table.upsert(rows())
    def token(): next_number(); table.upsert(rows(), txn=("app", number))
    def row(): table.upsert([{"k": ROWS * 9, "v": 1, "s": "r"}])
    def bulk(): next_number(); table.upsert(rows(400))
    def where(): next_number(); table.update(where=pc.field("k") < ROWS, set={"v": number})
    def remove(): table.delete(where=pc.field("k") >= ROWS)
    def batch():
        next_number()
        with table.batch() as b:
            b.delete({"k": [1, 2]}); b.upsert(rows())
    def alter():
        if "more" in table.schema.names: table.alter(drop=["more"])
        else: table.alter(add=[kc.Column("more", "int32", default=7)])
    def read():
        with table.snapshot() as s: s.get(1); s.scan(order="key").to_table()
        table.get_many([1, 2, 999]); table.count(pc.field("v") > 0)
        [b.num_rows for b in table.changes()]; [b.num_rows for b in table.scan(batch_rows=7)]
        [table.scan_token(t).to_table() for t in table.scan_tokens(target_rows=10)]
    def reader():
        with kc.open_table(path) as other: other.count(); other.refresh()
    def create():
        global made
        made += 1
        with kc.create_table(f"{path}-{made}", SCHEMA, "k") as other: other.insert(rows())
    def backup():
        global made
        made += 1
        table.backup(f"{path}-{made}")
        kc.restore(f"{path}-{made}", f"{path}-{made}-r").close()

    calls = {
        write: 6, row: 6, token: 2, bulk: 3, where: 2, remove: 1, batch: 2, alter: 1, read: 3, reader: 2,
        create: 1, backup: 1, lambda: table.flush(): 3, lambda: table.compact(): 2,
        lambda: table.compact(full=True): 2, lambda: table.maintain(): 2, lambda: table.gc(): 2,
        lambda: table.verify(): 1,
    }
    choices, weights = list(calls), list(calls.values())

    def reopen():
        global table, reopened
        table.close()
        table = kc.open_table(path, "rw")
        reopened += 1

    write()
    while interrupts < wanted:
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        before, began = number, interrupts
        try:
            armed = True
            longest = rng.choice((3e-4, 5e-3, 5e-2))
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, longest))
            while armed:
                before = number
                rng.choices(choices, weights)[0]()
            interrupts += 1  # it came in a finalizer
        except (KeyboardInterrupt, kc.Poisoned):
            interrupts += 1
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert_at_rest(table)
        if rng.random() < 0.05:
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 2e-2))
                table.close()
            except KeyboardInterrupt:
                interrupts += 1
            armed = False
            reopen()
        elif poisoned(table):
            reopen()
        settle(table)
        found = set(table.scan(["v"], [("k", "<", ROWS)]).to_table()["v"].to_pylist())
        found.update(table.get_many(list(range(ROWS)), ["v"])["v"].to_pylist(), [table.get(7)["v"]])
        assert len(found) == 1 and found <= {before, number}, (found, before, number)
        number = max(found)
        for n in range(max(0, made - 1), made + 1):
            for name in (f"{path}-{n}", f"{path}-{n}-r"):
                shutil.rmtree(name, ignore_errors=True)
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    table.verify()
    table.close()
    faulthandler.cancel_dump_traceback_later()
    print(interrupts, "interrupts,", reopened, "reopened,", number, "writes")
"""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("durability", "maintenance"),
    [
        ("sync", "manual"),
        ("group", "manual"),
        ("none", "manual"),
        ("group", "background"),
        ("none", "background"),
    ],
)
def test_signals(tmp_path: Path, durability: str, maintenance: str, long: bool, seed: int) -> None:
    wanted = 4000 if long else 30
    done = python(
        DRIVER, tmp_path / "t", durability, maintenance, wanted, seed, within_s=3600, warnings="default"
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-8000:]}"
    assert "interrupts" in done.stdout
