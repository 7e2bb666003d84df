"""Jobs of other processes: executors that leave files, drivers that commit them once (protocol B13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.objects import opening, sweep
from tests.model.objects.client import Client, Steps
from tests.model.objects.records import Ingest
from tests.model.objects.store import Name
from tests.model.objects.writer import Writer

if TYPE_CHECKING:
    from tests.model.objects.sim import World

TASKS = 2
PATIENCE = 60  #: looks of a driver for its tasks


class Job:
    """What drivers and executors of one job know without the store."""

    def __init__(self, world: World, number: int) -> None:
        self.number = number
        self.ids = [(world.number(),) for _ in range(TASKS)]
        self.told: dict[int, Name] = {}  # task -> the file that counts


def execute(client: Client, job: Job, task: int) -> Steps:
    """An attempt; the first of a task that ends is the one that counts."""
    client.world.stall(0.3)
    yield
    name: Name = ("files", job.number, client.world.number())
    yield from client.ask(client.store.put, name, job.ids[task])
    job.told.setdefault(task, name)


class Driver(Writer):
    def begin(self, job: Job) -> Steps:
        """Starts the tasks, waits for them and commits."""
        yield from self.ask(self.store.put, ("staging", job.number, "JOB"), "job")
        for task in range(TASKS):
            for attempt in range(1 + int(self.world.random() * 2)):
                client = Client(self.world, f"task {job.number}.{task}.{attempt}")
                self.world.start(execute(client, job, task))
        yield from self.finish(job)

    def finish(self, job: Job) -> Steps:
        """Commits a job; another driver may have done so, or be about to."""
        for _ in range(PATIENCE):
            if len(job.told) == TASKS:
                yield from self.guarded(self.commit_job(job))
                return
            yield

    def commit_job(self, job: Job) -> Steps:
        staged = None
        if not self.rules.job_looked_last:
            staged = yield from self.find("staging", job.number, "JOB")
        yield from opening.open_table(self)
        mark: Name = ("staging", job.number, "COMMITTED")
        verdict = self.state.jobs.get(job.number, (None, 0))[0] or (yield from self.find(*mark))
        self.world.stall(0.2)
        if verdict is None:
            if self.rules.job_looked_last:
                staged = yield from self.find("staging", job.number, "JOB")
            if staged is None or not (yield from self.all_there(job)):
                self.world.count("job refused")
                return
            if not self.rules.mark_after_record:
                yield from self.ask(self.store.put, mark, "applied")
            yield from self.add(job)
            verdict = "applied"
        if verdict == "given up":
            self.world.count("job refused")
            return
        self.acknowledge(*(key for ids in job.ids for key in ids))
        self.world.count("job committed")
        yield from self.ask(self.store.put, mark, "applied")
        yield from self.end(job)

    def all_there(self, job: Job) -> Steps:
        """LIST may lack a file that is there, so what it lacks is asked for."""
        listed = yield from self.ask(self.store.list, "files", job.number)
        for name in job.told.values():
            if name not in listed and (yield from self.find(*name)) is None:
                return False
        return True

    def add(self, job: Job) -> Steps:
        """One record names the files where they lie."""
        parts = []
        for task, name in sorted(job.told.items()):
            number = task % len(self.state.tablets)
            before = sum(part[0] == number for part in parts)
            parts.append((number, self.state.tablets[number].edit + 1 + before, name, job.ids[task]))
        yield from self.commit(Ingest(self.stamp(), job.number, tuple(parts)))

    def end(self, job: Job) -> Steps:
        """Files of attempts that lost, then work as any other writer's."""
        found = yield from self.ask(self.store.list, "files", job.number)
        yield from sweep.retire_unnamed(self, found)
        for name in ("write", "merge", "delete_due", "checkpoint", "delete_due"):
            if self.world.random() < 0.6:
                yield from self.take(name)
