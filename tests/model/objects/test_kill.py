"""Each operation is killed, or falls asleep, at each of its requests; others go on; nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.objects.job import TASKS, Driver, Job
from tests.model.objects.opening import open_table
from tests.model.objects.reader import Reader
from tests.model.objects.rules import (
    AS_SPECIFIED,
    STAGING,
    Environment,
    Fenced,
    Rules,
    Violation,
    shortcut,
)
from tests.model.objects.sim import World, finish
from tests.model.objects.store import FATES, Killed
from tests.model.objects.writer import Writer

QUIET = Environment(faults=0, pauses=0, kills=0)
WAITS = (0, STAGING, QUIET.grace, QUIET.kept)
OPERATIONS = ("flush", "merge", "ingest", "alter", "checkpoint", "delete_due", "close", "open", "commit_job")
#: What a successor does while the other sleeps: twice, so that what is retired is deleted in between.
SUCCESSOR = ("write", "write_once", "flush", "merge", "checkpoint", "sweep_jobs", "delete_due")


def prepared(seed: int, rules: Rules = AS_SPECIFIED) -> tuple[World, Writer, Job]:
    """A table with rows in memory, in files and in the log, with something to delete, and a staged job."""
    world = World(seed, rules, QUIET)
    writer = Writer(world, "writer")
    finish(open_table(writer))
    for name in ("write", "flush", "write", "checkpoint", "write", "flush", "ingest", "ingest", "write"):
        finish(writer.take(name))
    finish(writer.take("merge"))
    wait(world, QUIET.grace)
    job = Job(world, 0)
    world.store.put(("staging", 0, "JOB"), "job")
    for task in range(TASKS):
        job.told[task] = ("files", 0, world.number())
        world.store.put(job.told[task], job.ids[task])
    return world, writer, job


def wait(world: World, steps: int) -> None:
    for _ in range(steps):
        world.store.step()


def operation(name: str, world: World, writer: Writer, job: Job) -> Callable[[], object]:
    """What this returns goes on to the next request: called n + 1 times it has sent n."""
    if name == "open":
        steps = open_table(Writer(world, "next"))
    elif name == "close":
        steps = writer.guarded(writer.close())
    elif name == "commit_job":
        driver = Driver(world, "driver")
        steps = driver.guarded(driver.commit_job(job))
    else:
        steps = writer.guarded(writer.take(name))
    return lambda: next(steps)


def requests_of(name: str, seed: int, rules: Rules) -> int:
    take = operation(name, *prepared(seed, rules))
    count = 0
    while True:
        try:
            take()
        except StopIteration:
            return count
        count += 1


def succeed(world: World, job: Job, waits: int) -> None:
    """Others go on, for so long that everything that may be deleted is."""
    reader = Reader(world, "follower", True)
    finish(reader.once())
    for number in range(2):
        writer = Writer(world, f"successor {number}")
        finish(open_table(writer))
        for name in SUCCESSOR:
            finish(writer.take(name))
        wait(world, waits)
        finish(reader.once())
        for name in ("delete_due", "sweep_jobs", "checkpoint"):
            finish(writer.take(name))
    driver = Driver(world, "another driver")
    finish(driver.guarded(driver.commit_job(job)))


def kill(name: str, fate: str, seed: int, rules: Rules = AS_SPECIFIED) -> None:
    """Raises Violation, or Corruption."""
    count = requests_of(name, seed, rules)
    assert count > 0
    for at in range(1, count + 1):
        for waits in WAITS:
            world, writer, job = prepared(seed, rules)
            take = operation(name, world, writer, job)
            for _ in range(at):
                take()
            world.store.fate = fate
            with pytest.raises(Killed):
                take()
            succeed(world, job, waits)
            world.end()


def sleep(name: str, seed: int, rules: Rules = AS_SPECIFIED) -> None:
    """Raises Violation, or Corruption."""
    for at in range(1, requests_of(name, seed, rules) + 1):
        for waits in WAITS:
            world, writer, job = prepared(seed, rules)
            take = operation(name, world, writer, job)
            for _ in range(at):
                take()
            succeed(world, job, waits)
            try:
                while True:
                    take()
            except (StopIteration, Fenced):
                world.end()


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kill_at_each_request_loses_nothing(name: str, fate: str, seed: int) -> None:
    kill(name, fate, seed)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_sleep_at_each_request_loses_nothing(name: str, seed: int) -> None:
    sleep(name, seed)


@pytest.mark.parametrize(
    ("name", "fate", "left_out"),
    [
        ("flush", "", "names-reused"),
        ("ingest", "", "fences-deleted"),
        ("ingest", "", "proof-for-ever"),
        ("open", "", "later-epoch-ignored"),
        ("checkpoint", "late", "table-unconditional"),
        ("commit_job", "", "no-fence"),
        ("commit_job", "late", "mark-forgotten"),
        ("commit_job", "applied", "sweep-by-prefix"),
        ("commit_job", "never", "acknowledged-early"),
    ],
)
def test_they_find_what_they_are_for(name: str, fate: str, left_out: str) -> None:
    with pytest.raises(Violation):
        if fate:
            kill(name, fate, 0, shortcut(left_out))
        else:
            sleep(name, 0, shortcut(left_out))
