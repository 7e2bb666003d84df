"""Readers and followers in other processes (protocol B9, B10, B14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.objects.client import Client, Steps
from tests.model.objects.records import TABLE, State, rows_of
from tests.model.objects.rules import Corruption, Gone
from tests.model.objects.store import Missing

if TYPE_CHECKING:
    from tests.model.objects.sim import World

ATTEMPTS = 30


class Reader(Client):
    def __init__(self, world: World, name: str, follows: bool) -> None:
        super().__init__(world, name)
        self.follows = follows
        self.state: State | None = None
        self.sent = 0  # when the request for TABLE was sent
        self.began = 0  # the first number of the log that this reading has asked for

    def run(self, times: int) -> Steps:
        for _ in range(times):
            yield from self.once()
            self.world.stall(0.3)
            yield

    def once(self) -> Steps:
        """One answer, after as many attempts as it takes."""
        for _ in range(ATTEMPTS):
            try:
                yield from self.read()
                return
            except (Gone, Missing):
                self.world.count("reader again")
            except Corruption:
                self.world.count("reader refuses")
            self.state = None

    def read(self) -> Steps:
        """Raises Gone, Missing and Corruption, after which the reader starts again."""
        before, clock = self.world.oracle.acknowledged, self.store.now
        follows = self.follows and self.state is not None
        if not follows:
            self.sent = self.store.now
            table = yield from self.get(*TABLE)
            self.state = State(table, (yield from self.snapshots(table)), self.rules)
        state = self.state
        assert state is not None
        self.began = state.next
        early = self.store.now - self.sent
        self.world.stall(0.1)
        yield from self.read_log(state)
        asks = self.rules.follower_checks_table if follows else self.rules.reader_checks_table
        age = self.store.now - self.sent if self.rules.age_after_answer else early
        if asks and age >= self.world.environment.grace / 2:
            yield from self.look_again(state)
        rows = yield from self.rows(state)
        if not self.rules.now_before_table:
            clock = self.store.now
        self.world.oracle.seen(rows, before)
        if not follows:
            self.claim(state, clock, rows)
        self.world.count("followed" if follows else "read")

    def look_again(self, state: State) -> Steps:
        """Whether what was read is still the log: a number that was deleted may hold a ghost."""
        sent = self.store.now
        table = yield from self.get(*TABLE)
        if table.log_first > (self.began if self.rules.reader_checks_start else state.next):
            raise Gone("log_first has moved")
        self.sent = sent

    def rows(self, state: State) -> Steps:
        rows = []
        for tablet in state.tablets:
            for name, stamp in tablet.files:
                value = yield from self.find(*name)
                if value is not None:
                    rows += rows_of(value, stamp)
                elif self.rules.gone_again:
                    raise Gone(name)
            rows += [(ts, key) for ts, key, _ in tablet.memory]
        return sorted(rows)

    def claim(self, state: State, clock: int, rows: list[tuple[int, int]]) -> None:
        """Protocol B10: with nobody writing, the newest state answers for all that is past."""
        if state.next == state.table.clean_end or not self.rules.clean_end_asked:
            self.world.oracle.claim(max(clock - 1, state.last_ts), len(rows))
            self.world.count("settled")
