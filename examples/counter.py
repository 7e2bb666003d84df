"""Counters that four processes increment at once, through the one that writes.

    python examples/counter.py [--table counters] [--processes 4] [--each 200]

One handle writes a table at a time.  Here it is that of the main process; the others put each step into its
queue and wait for the answer.  A step says what to add, not what is to be, so nobody need know what is there:
``set={"n": old("n") + new("n")}``.  No step is lost, and none is counted twice: each has a name (``txn``), so
whoever has not heard the answer may send the step again.

The writer does not wait for the disk with each step: it takes what lies in the queue, and answers all of them
when they are on disk (``wait=False``).  So steps of four processes share an fsync.
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import random
from pathlib import Path
from typing import Any

import pyarrow as pa

import kudu_core as kc

SCHEMA = pa.schema([("name", pa.string()), ("n", pa.int64())])
NAMES = ("visits", "orders", "errors")
MOST_WAITING = 100
"""Steps that the writer takes before it answers them."""


def count(who: int, each: int, steps: Any, answers: Any) -> None:
    """What each of the processes does.  Now and then an answer is lost, and the step is sent again."""
    rng = random.Random(who)
    for number in range(each):
        step = {"name": rng.choice(NAMES), "n": 1}
        for _ in range(2 if rng.random() < 0.1 else 1):
            steps.put((who, number, step))
            answers.get()
    steps.put((who, None, None))


def write(table: kc.Table, processes: int, steps: Any, answers: Any) -> int:
    """Until all processes have ended.  How many steps had come before."""
    run = table.timestamp  # names that no run before has used
    running, repeated = processes, 0
    waiting: list[tuple[int, kc.WriteTicket]] = []
    while running:
        try:
            who, number, step = steps.get(block=not waiting)
        except queue.Empty:
            repeated += answered(waiting, answers)
            continue
        if step is None:
            running -= 1
            continue
        added = {"n": kc.old("n") + kc.new("n")}
        ticket = table.upsert([step], set=added, txn=(f"run {run}, process {who}", number), wait=False)
        waiting.append((who, ticket))
        if len(waiting) == MOST_WAITING:
            repeated += answered(waiting, answers)
    return repeated + answered(waiting, answers)


def answered(waiting: list[tuple[int, kc.WriteTicket]], answers: Any) -> int:
    """Tell those who wait that their steps are on disk."""
    repeated = 0
    for who, ticket in waiting:
        repeated += ticket.result().deduplicated
        answers[who].put(True)
    waiting.clear()
    return repeated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--table", type=Path, default=Path("counters"))
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--each", type=int, default=200)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    steps = context.Queue()
    answers = [context.Queue() for _ in range(given.processes)]
    with kc.create_table(given.table, SCHEMA, "name", exist_ok=True) as table:
        before = sum(table.scan(["n"]).to_table()["n"].to_pylist())
        workers = [
            context.Process(target=count, args=(who, given.each, steps, answers[who]), daemon=True)
            for who in range(given.processes)
        ]
        for worker in workers:
            worker.start()
        repeated = write(table, given.processes, steps, answers)
        for worker in workers:
            worker.join()
        found = {row["name"]: row["n"] for row in table.scan(order="key").to_pylist()}
        print(found)
        print(f"{sum(found.values()) - before} steps were counted, {repeated} had come before")


if __name__ == "__main__":
    main()
