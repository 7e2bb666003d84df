"""Orphans: what nobody names and nobody ever will (protocol B13)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.model.objects.checkpoint import retire
from tests.model.objects.client import Steps
from tests.model.objects.records import TABLE, GiveUp
from tests.model.objects.rules import STAGING, Fenced

if TYPE_CHECKING:
    from tests.model.objects.store import Name
    from tests.model.objects.writer import Writer


def find_orphans(writer: Writer) -> Steps:
    """What earlier writers have left in tablets/ and below the log.  It is deleted later."""
    writer.world.stall(0.1)
    found = yield from writer.ask(writer.store.list, "tablets")
    named = writer.state.named() | set(writer.table.snapshots)
    orphans: list[Name] = []
    for name in found:
        older = name[2] < writer.epoch or not writer.rules.sweep_older_epochs
        if older and name not in named:
            orphans.append(name)
    found = yield from writer.ask(writer.store.list, "log")
    for name, time in found.items():
        if name[1] >= writer.table.log_first:
            continue
        # A fence is known by its size: a header without a record.
        if writer.rules.keep_fences and not writer.store.objects[name][0].records:
            if writer.store.now - time <= writer.world.environment.kept:
                continue
        orphans.append(name)
    if writer.rules.grace_for_found:
        retire(writer, *orphans)
        return
    for name in orphans:
        yield from writer.ask(writer.store.delete, name)


def sweep_jobs(writer: Writer) -> Steps:
    """Jobs that are over, or whose driver nobody has heard of for long."""
    writer.world.stall(0.1)
    files = yield from writer.ask(writer.store.list, "files")
    staging = yield from writer.ask(writer.store.list, "staging")
    for job in sorted({name[1] for name in (*files, *staging)}):
        mine = {name: time for name, time in (files | staging).items() if name[1] == job}
        marks = {name[2]: time for name, time in staging.items() if name[1] == job}
        yield from sweep_job(writer, job, mine, marks)


def sweep_job(writer: Writer, job: int, names: dict[Name, int], marks: dict[str, int]) -> Steps:
    """``names``: of all its objects, with their times; ``marks``: of JOB and COMMITTED, as listed."""
    mark: Name = ("staging", job, "COMMITTED")
    over = "COMMITTED" in marks
    if not over and "JOB" not in marks and writer.rules.absence_by_get:
        over = (yield from writer.find(*mark)) is not None
        if not over and (yield from writer.find("staging", job, "JOB")) is not None:
            marks = marks | {"JOB": writer.store.now}
    if not over and "JOB" in marks:
        if writer.store.now - max(names.values()) < STAGING:
            return
        if job not in writer.state.jobs:
            yield from give_up(writer, job)
        if writer.rules.give_up_first:
            yield from writer.ask(writer.store.put, mark, writer.state.jobs[job][0])
    elif writer.store.now - marks.get("COMMITTED", 0) < STAGING:
        return
    yield from retire_unnamed(writer, [name for name in names if name[0] == "files"])
    yield from writer.ask(writer.store.delete, ("staging", job, "JOB"))
    old = "COMMITTED" in marks and writer.store.now - marks["COMMITTED"] > writer.world.environment.kept
    if old or not writer.rules.mark_outlives_job:
        yield from writer.ask(writer.store.delete, mark)
    writer.world.count("swept")


def retire_unnamed(writer: Writer, names: Iterable[Name]) -> Steps:
    """Of the files of a job that is over, those that no tablet names.  Raises Fenced."""
    named = writer.state.named() if writer.rules.sweep_by_name else set()
    doomed = [name for name in names if name not in named]
    if writer.rules.sweep_proves and (yield from writer.get(*TABLE)).epoch != writer.epoch:
        raise Fenced("a later epoch during a sweep")
    writer.world.stall(0.1)
    retire(writer, *doomed)


def give_up(writer: Writer, job: int) -> Steps:
    """After this record nobody can commit the job (protocol B13)."""
    if writer.rules.give_up_first:
        yield from writer.commit(GiveUp(job))
        writer.world.count("given up")
    writer.say("gives up", job)
