"""Random runs: actors in any interleaving of their requests, asleep for long, killed at any of them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.model.objects.client import Steps
from tests.model.objects.job import Driver, Job
from tests.model.objects.opening import open_table
from tests.model.objects.oracle import Oracle
from tests.model.objects.reader import Reader
from tests.model.objects.records import TABLE, Table
from tests.model.objects.rules import AS_SPECIFIED, Corruption, Environment, Fenced, Rules, Violation
from tests.model.objects.store import FATES, Killed, Store
from tests.model.objects.writer import Writer, never_missing
from tests.model.sim import Outcome

TABLETS = 2
SLEEPS = (15, 30, 60, 120, 250, 500)
TO_THE_END = 600  #: steps that an actor may take after the run


class Application:
    """Writes with tokens, one after the other; each is repeated until it is answered."""

    def __init__(self, first: int) -> None:
        self.version, self.id = 1, first

    def answered(self, version: int, following: int) -> None:
        if version == self.version:
            self.version, self.id = version + 1, following


class World:
    """A table from its creation, and all that goes on with it."""

    def __init__(
        self, seed: int, rules: Rules = AS_SPECIFIED, environment: Environment | None = None
    ) -> None:
        self.rules, self.environment = rules, environment or Environment()
        rng = random.Random(seed)
        self.random, self.choices = rng.random, rng.choices
        self.trace: list[tuple[Any, ...]] = []
        self.counts: Counter[str] = Counter()
        self.promised: list[int] = []  # acknowledged by a shortcut before anybody could know
        self._number = 0
        table = Table(0, 1, 0, 0, (None,) * TABLETS, (), 1, 0, self.number())
        self.oracle = Oracle(table)
        self.store = Store(rng, self.environment, self.oracle)
        self.store.objects[TABLE] = table, 0
        self.application = Application(self.number())
        self.actors: list[list[Any]] = []  # steps, the time until which they sleep
        self._sleepy = False

    def number(self) -> int:
        """Used once: ids of rows and puts, parts of names."""
        self._number += 1
        return self._number

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def stall(self, chance: float) -> None:
        """The actor that calls may fall asleep before its next request."""
        if self.environment.pauses and self.random() < chance:
            self._sleepy = True

    def start(self, steps: Steps) -> None:
        self.actors.append([steps, 0])

    # -- the scheduler -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises Violation; Corruption in a store that breaks its conditions."""
        waiting = self.cast()
        chance = 3 * len(waiting) / (2 * self.environment.steps)
        for _ in range(self.environment.steps):
            self.store.step()
            if waiting and (not self.actors or self.random() < chance):
                self.start(waiting.pop(0))
            if self.actors:
                self.turn()
            elif not waiting:
                break
        self.end()

    def cast(self) -> list[Steps]:
        """Who will act, in the order in which they begin."""
        environment = self.environment
        readers = [Reader(self, f"reader {n}", n % 2 == 1).run(25) for n in range(environment.readers)]
        others = [Writer(self, f"writer {n}").run(environment.operations) for n in range(environment.writers)]
        for number in range(environment.jobs):
            job = Job(self, number)
            place = int(self.random() * (len(others) + 1))
            others.insert(place, Driver(self, f"driver {number}").begin(job))
            for commit in range(1, environment.commits):
                place = min(len(others), place + 1 + int(self.random() * 3))
                others.insert(place, Driver(self, f"driver {number}.{commit}").finish(job))
        for reader in readers:
            self.start(reader)
        return others

    def turn(self) -> None:
        now, environment = self.store.now, self.environment
        actor = self.actors[int(self.random() * len(self.actors))]
        if actor[1] > now:
            return
        x = self.random()
        if x < environment.pauses:
            actor[1] = now + SLEEPS[int(self.random() * len(SLEEPS))]
            return
        if x > 1 - environment.kills:
            self.store.fate = FATES[int(self.random() * 3)]
        self._sleepy = False
        self.take(actor)
        if self._sleepy:
            actor[1] = now + SLEEPS[int(self.random() * len(SLEEPS))]

    def take(self, actor: list[Any]) -> None:
        """The next request of an actor; who dies is gone."""
        try:
            next(actor[0])
        except StopIteration:
            self.actors.remove(actor)
        except Killed:
            self.count("killed")
            self.actors.remove(actor)
        # A step without a request has met nothing.
        self.store.fate = None

    # -- the end -------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Who sleeps wakes up and goes on, every request arrives, and the table is opened once more."""
        for actor in list(self.actors):
            for _ in range(TO_THE_END):
                if actor not in self.actors:
                    break
                self.store.step()
                self.take(actor)
        self.store.faults = 0
        while self.store.late:
            self.store.step()
        self.look()

    def look(self) -> None:
        """The last opener finds the history, all of it and once."""
        self.oracle.acknowledge(tuple(self.promised))
        last = Writer(self, "last")
        try:
            finish(open_table(last))
            rows = finish(never_missing(last))
        except Fenced as error:
            raise Violation(f"O1: the table cannot be opened: {error}") from error
        if rows != self.oracle.history:
            raise Violation("N3: the table is not what its history makes it")
        finish(Reader(self, "last reader", False).read())
        self.oracle.end()


def finish(steps: Steps) -> Any:
    """All of it, while nobody else acts."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


#: A shortcut may also lead a run where the model's own code stumbles: that, too, is caught.
STUMBLES = (KeyError, IndexError, TypeError, ValueError, AssertionError)


def run(seed: int, rules: Rules = AS_SPECIFIED, environment: Environment | None = None) -> Outcome:
    """One run from its seed."""
    world = World(seed, rules, environment)
    violation = ""
    try:
        world.run()
    except Violation as error:
        violation = str(error)
    except Corruption as error:
        if not world.environment.broken:
            violation = f"O1: the table cannot be read: {error}"
        world.count("refused")
    except STUMBLES as error:
        if rules == AS_SPECIFIED:
            raise
        violation = f"{type(error).__name__}: {error}"
    world.counts["requests"] = world.store.requests
    world.counts["acknowledged"] = world.oracle.acknowledged
    return Outcome(seed, violation, world.trace, world.counts)
