"""Requests whose outcome must become known: reads, log objects (protocol B3), TABLE (protocol B6).

Every actor is a generator that yields before each request; ``yield from`` runs a part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from tests.model.objects.records import TABLE, LogObject, State, Table
from tests.model.objects.rules import DEADLINE, Corruption, Fenced, Gone, Poisoned
from tests.model.objects.store import ABSENT, Failed, Fault, Missing, Name

if TYPE_CHECKING:
    from tests.model.objects.sim import World

Steps = Generator[None, None, Any]


class Unknown(Exception):
    """A shortcut: a log object whose outcome is not known is left behind."""


class Client:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.store, self.rules, self.name = world, world.store, world.rules, name

    def say(self, *what: Any) -> None:
        self.world.trace.append((self.store.now, self.name, *what))

    def ask(self, request: Callable[..., Any], *arguments: Any) -> Steps:
        """What may be repeated without harm: reads, deletions, puts of names that nobody else uses."""
        while True:
            yield
            try:
                return request(*arguments)
            except Fault:
                continue

    def get(self, *name: Any) -> Steps:
        return self.ask(self.store.get, name)

    def find(self, *name: Any) -> Steps:
        """None where there is none."""
        try:
            return (yield from self.get(*name))
        except Missing:
            return None

    def read_log(self, state: State) -> Steps:
        """Applies the log to ``state`` up to the first missing number, two numbers at a time."""
        again = False
        while True:
            first = state.next
            wave = [first, first + 1]
            if self.world.random() < 0.5:
                wave.reverse()
            found: dict[int, LogObject] = {}
            for n in wave:
                item = yield from self.find("log", n)
                if item is not None:
                    found[n] = item
            if first not in found:
                if first + 1 not in found:
                    return
                if not self.rules.gap_again:
                    state.apply(found[first + 1], gap=True)
                    continue
                if again:
                    # It does not come: what lies beyond it is a fence that was kept (protocol B5).
                    raise Gone(f"log object {first}")
                again = True
                continue
            again = False
            state.apply(found[first])
            if first + 1 not in found:
                return
            state.apply(found[first + 1])
            self.world.stall(0.1)

    def put_log(self, item: LogObject) -> Steps:
        """None if the object is there and ours, else the one that is there instead.

        Raises Poisoned when the time is over.
        """
        name: Name = ("log", item.n)
        attempts = 0
        self.world.stall(0.05)
        while True:
            yield
            try:
                self.store.put(name, item, ABSENT)
                return None
            except Fault:
                if not self.rules.same_number:
                    raise Unknown from None
                attempts += 1
                if attempts == DEADLINE:
                    raise Poisoned from None
            except Failed:
                have = yield from self.find(*name)
                if have is None:
                    continue  # 409: a request for this name was under way
                if self.rules.own_id and have.put_id == item.put_id:
                    return None
                return have

    def replace_table(self, table: Table, seen: Table) -> Steps:
        """Puts ``table`` where ``seen`` stands.  Raises Fenced."""
        while True:
            yield
            try:
                self.store.put(TABLE, table, seen if self.rules.cas_table else None)
                return
            except (Fault, Failed):
                now = yield from self.get(*TABLE)
                if now == table:
                    return
                if now != seen and self.rules.cas_table:
                    raise Fenced("TABLE was replaced") from None

    def snapshots(self, table: Table) -> Steps:
        found = []
        for name in table.snapshots:
            found.append(None if name is None else (yield from self.get(*name)))
        return found

    def refuse(self, why: Exception, table: Table | None) -> Steps:
        """Something is missing: only a writer that a later one has replaced may meet that."""
        now = yield from self.get(*TABLE)
        if table is not None and now.epoch == table.epoch:
            raise Corruption(f"the newest writer cannot go on: {type(why).__name__} {why}") from why
        raise Fenced("its table has moved on")
