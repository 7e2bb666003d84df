"""Damage to one file of a table, and what a table may do about it.

The rule of every case: each read gives exactly what was acknowledged, or the call raises an error that
names a file and a place in it.  Nothing else: no other value, no other exception, no hang.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import kudu_core as kc
from kudu_core.errors import Corruption
from tests.support.clock import ManualClock
from tests.support.faults import ROOT, TINY, Stage, checking, drop, segments_of
from tests.support.fs.memory import MemoryFileSystem
from tests.support.guard import within
from tests.support.models.history import VALUES, History
from tests.support.models.model import TableModel

CPU_SECONDS = 20.0
BLOCK = 256
"""The files of a small table are a few KiB: what is a 4 KiB block of a real one."""

Files = dict[str, bytes]


def walk(fs: MemoryFileSystem, path: str = ROOT) -> Iterator[str]:
    """Every file below a directory."""
    for name in fs.listdir(path):
        child = f"{path}/{name}"
        if fs.is_dir(child):
            yield from walk(fs, child)
        else:
            yield child


def contents(fs: MemoryFileSystem) -> Files:
    return {path: fs.read_bytes(path, 1 << 30) for path in walk(fs)}


def put(fs: MemoryFileSystem, path: str, data: bytes | None) -> None:
    """Set a file's bytes behind the table's back; None removes it."""
    fs.unlink(path, missing_ok=True)
    if data is not None:
        file = fs.create(path)
        file.append(data)
        file.sync()
        file.close()
    fs.sync_dir(path.rsplit("/", 1)[0])


@dataclass(frozen=True)
class Damage:
    """What became of one file."""

    path: str
    what: str
    data: bytes | None

    def __str__(self) -> str:
        return f"{self.path.removeprefix(ROOT)}: {self.what}"


@dataclass
class Subject:
    """A table on a disk of its own, and what it must hold.

    ``older``: earlier contents of its files.  ``twin``: the files of another table with the same history of
    calls, which has files of the same names.
    """

    name: str
    disk: MemoryFileSystem
    history: History
    now_us: int
    older: list[Files]
    twin: Files
    files: Files = field(init=False)

    def __post_init__(self) -> None:
        self.files = contents(self.disk)

    def damaged(self, damage: Damage) -> MemoryFileSystem:
        fs = self.disk.crash_clone(0, keep="all")
        put(fs, damage.path, damage.data)
        return fs


def kind_of(path: str) -> str:
    """Which sort of file a path of the table is."""
    name = path.rsplit("/", 1)[1]
    if "/wal/" in path:
        return name if name == "COMMITTED" else "spare" if name.startswith("spare") else "log"
    return name.rsplit(".", 1)[1] if "." in name else name


# ---- making tables


def _begin(seed: int) -> tuple[Stage, list[Files]]:
    disk = MemoryFileSystem()
    disk.mkdir("/tables")
    return Stage(disk, History(), seed, ManualClock()), []


def _life(stage: Stage, older: list[Files]) -> None:
    """Two tablets with every sort of file: REDO, UNDO and ingested files, sealed, recycled and half-written
    segments, manifests of several edits, and changes that only the log holds."""

    def keep() -> None:
        older.append(contents(stage.fs))

    stage.create()
    keep()
    stage.write(20)
    stage.write(20)
    stage.flush()
    keep()
    for _ in range(4):
        stage.write(8)
    stage.flush()
    stage.ingest()
    stage.write(10)
    stage.flush()
    keep()
    stage.opened.close()
    keep()
    stage.open()
    for number in range(12):
        stage.write(12)
        if number % 4 == 0:
            stage.flush()
    stage.opened.compact()  # merged REDO files, rewritten columns
    stage.write(12)
    stage.flush()
    keep()
    stage.ingest(range(20, 60))
    while sum(name.startswith("spare") for name in stage.fs.listdir(f"{ROOT}/wal")) > 1:
        stage.write(4)  # until one segment is recycled, and one waits for it


def _made(seed: int, *, close: bool) -> tuple[Stage, list[Files]]:
    with segments_of(TINY), checking(False):
        stage, older = _begin(seed)
        _life(stage, older)
        if close:
            stage.opened.close()
        else:
            drop(stage.table)
            stage.fs.kill()
        return stage, older


def subject(name: str, seed: int) -> Subject:
    """``name``: "closed" or "killed"."""
    stage, older = _made(seed, close=name == "closed")
    twin, _ = _made(seed, close=name == "closed")
    stage.fs.sync_all()
    return Subject(name, stage.fs, stage.history, stage.clock.now_us() + 1000, older, contents(twin.fs))


# ---- doing damage


def _flip(rng: random.Random, data: bytes) -> tuple[str, bytes] | None:
    if not data:
        return None
    # Half of them where the meaning is dense: the beginning and the end.
    near = min(len(data), 96)
    at = rng.choice((rng.randrange(len(data)), rng.randrange(near), len(data) - 1 - rng.randrange(near)))
    bit = rng.randrange(8)
    out = bytearray(data)
    out[at] ^= 1 << bit
    return f"bit {bit} of byte {at} flipped", bytes(out)


def _garble(rng: random.Random, data: bytes) -> tuple[str, bytes] | None:
    if not data:
        return None
    at = rng.randrange(len(data))
    length = rng.choice((1, 4, 8, 40))
    out = data[:at] + rng.randbytes(min(length, len(data) - at)) + data[at + length :]
    return f"{length} random bytes at {at}", out


def _cut(rng: random.Random, data: bytes) -> tuple[str, bytes] | None:
    if not data:
        return None
    size = rng.choice((0, 1, rng.randrange(len(data)), len(data) - 1, max(0, len(data) - 8)))
    return f"cut to {size} of {len(data)} bytes", data[:size]


def _extend(rng: random.Random, data: bytes) -> tuple[str, bytes] | None:
    tail = rng.choice((b"\0", bytes(64), rng.randbytes(40), data[-64:], data))
    return f"{len(tail)} bytes added", data + tail


def _zero(rng: random.Random, data: bytes) -> tuple[str, bytes] | None:
    if not data:
        return None
    at = rng.randrange(0, len(data), BLOCK)
    length = min(rng.choice((BLOCK, 4096)), len(data) - at)
    return f"{length} zeros at {at}", data[:at] + bytes(length) + data[at + length :]


def _swap(rng: random.Random, data: bytes) -> tuple[str, bytes] | None:
    if len(data) < 2 * BLOCK:
        return None
    one, two = sorted(rng.sample(range(len(data) // BLOCK), 2))
    pieces = [data[i : i + BLOCK] for i in range(0, len(data), BLOCK)]
    pieces[one], pieces[two] = pieces[two], pieces[one]
    return f"blocks {one} and {two} swapped", b"".join(pieces)


IN_PLACE: tuple[Callable[[random.Random, bytes], tuple[str, bytes] | None], ...] = (
    _flip,
    _flip,
    _garble,
    _cut,
    _extend,
    _zero,
    _swap,
)


def whole_file(subject: Subject, path: str) -> list[Damage]:
    """The file is gone, empty, or another one that has its name."""
    found = [Damage(path, "missing", None), Damage(path, "empty", b"")]
    kind = kind_of(path)
    for other, data in subject.files.items():
        if other != path and kind_of(other) == kind:
            found.append(Damage(path, f"replaced by {other.removeprefix(ROOT)}", data))
    if path in subject.twin:
        found.append(Damage(path, "replaced by that of another table", subject.twin[path]))
    for number, files in enumerate(subject.older):
        if files.get(path, subject.files[path]) != subject.files[path]:
            found.append(Damage(path, f"as it was at moment {number}", files[path]))
    return [damage for damage in found if damage.data != subject.files[path]]


def in_place(subject: Subject, path: str, rng: random.Random) -> Damage | None:
    made = rng.choice(IN_PLACE)(rng, subject.files[path])
    if made is None or made[1] == subject.files[path]:
        return None
    return Damage(path, *made)


# ---- judging


def is_clear(error: Exception) -> bool:
    """Whether an error says what is damaged: a file of the table, and where."""
    if isinstance(error, Corruption):
        return error.path.startswith(ROOT) and error.offset >= 0 and bool(error.reason)
    return isinstance(error, kc.TableNotFound)


@contextmanager
def refusing(outcome: list[str]) -> Iterator[None]:
    """The block ends well or in a clear error; which of them is noted."""
    try:
        with within(CPU_SECONDS):
            yield
    except (Corruption, kc.TableNotFound) as error:
        assert is_clear(error), f"{error!r} does not say what is damaged"
        outcome.append(type(error).__name__)
        return
    outcome.append("right")


def _go_back(history: History, timestamp: int) -> None:
    """The history as it was at a timestamp."""
    history.past.times[:] = [ts for ts in history.past.times if ts <= timestamp]
    state = history.past.at(timestamp)
    history.model = TableModel(["k"], dict.fromkeys(VALUES))
    for (key,), values in state.items():
        history.model.call("insert", [{"k": key, **dict(zip(VALUES, values, strict=True))}])


def check_reader(subject: Subject, fs: MemoryFileSystem, damage: Damage, seed: int) -> str:
    stage = Stage(fs, subject.history.copy(), seed, ManualClock(subject.now_us))
    outcome: list[str] = []
    with refusing(outcome), stage.open("r") as table:
        if kind_of(damage.path) == "MANIFEST" and subject.name == "killed":
            # The last edits of a table that was not closed may be gone with a power cut: a reader
            # ends before an ingest that no manifest has (protocol R2), and says so.
            _go_back(stage.history, table.timestamp)
        stage.history.settle(table)
        stage.history.check(table, random.Random(seed))
        for key, row in list(stage.history.model.state().items())[:3]:
            assert table.get(key[0]) == {"k": key[0], **dict(zip("abc", row, strict=True))}
        table.refresh()
        stage.history.check(table, random.Random(seed), past=1)
    return outcome[0]


def check_verify(subject: Subject, fs: MemoryFileSystem, damage: Damage, seed: int) -> str:
    """What ``verify`` calls sound, of a table damaged beside an open handle, opens and reads whole."""
    disk = subject.disk.crash_clone(0, keep="all")
    stage = Stage(disk, subject.history.copy(), seed, ManualClock(subject.now_us))
    outcome: list[str] = []
    with segments_of(TINY), checking(False), stage.open("r") as reader:
        put(disk, damage.path, damage.data)
        with refusing(outcome):
            reader.verify()
    if outcome[0] == "right":
        assert check_reader(subject, fs.crash_clone(0, keep="all"), damage, seed) == "right"
        assert check_writer(subject, fs, damage, seed) == "right"
    return outcome[0]


def check_writer(subject: Subject, fs: MemoryFileSystem, damage: Damage, seed: int) -> str:
    """Open, read, write on, and read that; after a refusal the mended file brings everything back."""
    stage = Stage(fs, subject.history.copy(), seed, ManualClock(subject.now_us))
    outcome: list[str] = []
    before = contents(fs)
    with segments_of(TINY), checking(False):
        with refusing(outcome):
            stage.open()
            stage.history.settle(stage.opened)
            stage.history.check(stage.opened, random.Random(seed))
            stage.write(6)
            stage.flush()
            stage.write(6)
            stage.opened.close()
            with stage.open("r") as table:
                stage.history.settle(table)
                stage.history.check(table, random.Random(seed), past=1)
        if outcome[0] == "right":
            return "right"
        if stage.table is None and kind_of(damage.path) in ("rows", "delta"):
            pass  # found by the replay, which is after the first change
        elif stage.table is None:
            after = contents(fs)
            after.pop(f"{ROOT}/LOCK", None)
            before.pop(f"{ROOT}/LOCK", None)
            assert after == before, f"a refused open has changed {set(after.items()) ^ set(before.items())!r}"
        else:
            with suppress(kc.KuduError):
                stage.opened.close()
            return outcome[0]
        put(fs, damage.path, subject.files[damage.path])
        again = Stage(fs, subject.history.copy(), seed, ManualClock(subject.now_us))
        again.open()
        again.history.settle(again.opened)
        again.history.check(again.opened, random.Random(seed), past=1)
        drop(again.table)
    return outcome[0]
