"""Random histories of a table, run against the engine and the model side by side.

A ``Case`` is data: a schema, options and a list of steps whose ``repr`` is code that makes it again.
``replay`` runs one and raises where the engine and the model disagree; ``shrink`` leaves out what a
failure does not need.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import kudu_core as kc
from tests.support import cells
from tests.support.model import Key, Outcome, State, TableModel, Timeline, difference, order_of

Cell = Any
Predicate = tuple[Any, ...]
"""("cmp", column, operator, cell), ("in", column, cells), ("null" | "valid" | "nan", column),
("starts" | "contains", column, text), ("flag", column), ("same", column, column), ("const", bool),
("and" | "or", p, q), ("not", p), or filter lists: ("dnf", [[(column, operator, cell), ...], ...])."""


# ------------------------------------------------------------------------------------- what a case is


@dataclass(frozen=True)
class Col:
    name: str
    type: str
    nullable: bool = True
    default: Cell = None

    @property
    def arrow(self) -> pa.DataType:
        return cells.arrow_type(self.type)


@dataclass(frozen=True)
class Write:
    """One call; ``rows`` are tuples of cells of ``columns``."""

    op: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    on_error: str = "raise"
    form: str = "table"
    look: int = 0


@dataclass(frozen=True)
class Apply:
    """Mixed operations: ``ops[i]`` is done with ``rows[i]``."""

    ops: list[str]
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    on_error: str = "raise"
    form: str = "table"
    look: int = 0


@dataclass(frozen=True)
class Batch:
    calls: list[Write | Apply]
    on_error: str = "raise"
    broken: bool = False
    """The block raises before its end."""
    look: int = 0


@dataclass(frozen=True)
class DeleteWhere:
    where: Predicate
    look: int = 0


@dataclass(frozen=True)
class UpdateWhere:
    where: Predicate
    set: dict[str, Any]
    """Cells, or ("old", column)."""
    look: int = 0


@dataclass(frozen=True)
class Invalid:
    """A call that must be refused as a whole: see ``_INVALID``."""

    kind: str
    look: int = 0


@dataclass(frozen=True)
class Do:
    """ "flush", "merge" (all rowsets of each tablet), "reopen", "reader" (open one for reading), "refresh"
    (one that stays open), "pin" (a snapshot and a scan half read), "release" (the pinned one)."""

    what: str
    look: int = 0


Step = Write | Apply | Batch | DeleteWhere | UpdateWhere | Invalid | Do


@dataclass(frozen=True)
class Case:
    columns: tuple[Col, ...]
    key: tuple[str, ...]
    hashes: tuple[tuple[tuple[str, ...], int], ...] = ()
    ranges: tuple[tuple[Cell, Cell], ...] = ()
    """Half-open ranges of the first key column, None = open; none: no range dimension."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    check: bool = False
    """Run under the engine's own invariant checks."""
    steps: list[Step] = dataclasses.field(default_factory=list)

    def by_name(self, name: str) -> Col:
        return next(c for c in self.columns if c.name == name)

    @property
    def values(self) -> tuple[Col, ...]:
        return tuple(c for c in self.columns if c.name not in self.key)

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([(c.name, c.arrow) for c in self.columns])


_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Nothing here is about power cuts: where an fsync costs nothing there is time for more steps."""


class Disagree(AssertionError):
    """The engine and the model have different answers."""


def code_of(case: Case) -> str:
    """A test that runs the case again."""
    fields = [f"    {f.name}={getattr(case, f.name)!r}," for f in dataclasses.fields(case)[:-1]]
    steps = [f"        {step!r}," for step in case.steps]
    return "\n".join(
        (
            "from tests.support.differential import *",
            "",
            "replay(Case(",
            *fields,
            "    steps=[",
            *steps,
            "    ],",
            "))",
        )
    )


# ------------------------------------------------------------------------------------- making cases

KEY_TYPES = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "string", "binary", "date32",
    "timestamp[us]", "timestamp[us,UTC]", "decimal128(38,10)", "decimal128(9,2)", "decimal128(18,18)",
)  # fmt: skip
VALUE_TYPES = (*KEY_TYPES, "bool", "float32", "float64")
FORMS = ("table", "table", "batches", "reader", "dict", "kin", "pieces", "python", "python")
OPS = ("insert", "upsert", "update", "delete", "insert_ignore", "update_ignore", "delete_ignore")


def random_case(seed: int, steps: int) -> Case:
    """The case of a seed."""
    return _Maker(random.Random(seed)).case(steps)


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def case(self, steps: int) -> Case:
        rng = self.rng
        key = tuple(
            Col(f"k{i}", rng.choice(KEY_TYPES), nullable=rng.random() < 0.5)
            for i in range(rng.choice((1, 1, 2, 2, 3)))
        )
        values = tuple(self._value_column(i) for i in range(rng.choice((0, 1, 3, 5, 8))))
        columns = [*key, *values]
        if rng.random() < 0.3:
            rng.shuffle(columns)
        names = tuple(c.name for c in key)
        pools = {c.name: list(cells.ugly(c.arrow)) for c in columns}
        share = 6 if len(key) > 1 else 40
        self.pools = {n: rng.sample(p, min(len(p), share)) if n in names else p for n, p in pools.items()}
        hashes, ranges = (), ()
        if rng.random() < 0.4:
            hashes = ((names[: rng.randint(1, len(names))], rng.choice((2, 3, 5))),)
        if rng.random() < 0.35:
            ranges = self._ranges(self.pools[names[0]])
        background = rng.random() < 0.3
        options = {
            "maintenance": "background" if background else "manual",
            "durability": rng.choice(("none", "none", "group", "sync")),
            "ingest_threshold_rows": rng.choice((1, 8, 40, 100_000)),
            "rowset_target_bytes": 65_536,
            "scan_threads": rng.choice((1, 1, 2)),
        }
        if background:
            options |= {"flush_age_s": rng.choice((0.0, 0.01, 120.0)), "flush_threshold_bytes": 65_536}
        self.made = Case(tuple(columns), names, hashes, ranges, options, check=rng.random() < 0.3)
        taken = [self._step() for _ in range(steps)]
        return dataclasses.replace(self.made, steps=taken)

    def _value_column(self, number: int) -> Col:
        rng = self.rng
        name = rng.choice(VALUE_TYPES)
        nullable = rng.random() < 0.75
        default = rng.choice(_defaults(name)) if rng.random() < 0.3 else None
        return Col(f"v{number}", name, nullable, default)

    def _ranges(self, pool: Sequence[Cell]) -> tuple[tuple[Cell, Cell], ...]:
        cuts = sorted(self.rng.sample(pool, min(len(pool), 5)), key=lambda c: order_of((c,)))
        cuts = [c for c in cuts if c not in ("", b"")]
        edges = [None, *cuts, None]
        pieces = list(itertools.pairwise(edges))
        kept = [p for p in pieces if self.rng.random() < 0.8]
        return tuple(kept or pieces[:1])

    # ---- steps

    def _step(self) -> Step:
        rng, look = self.rng, self.rng.getrandbits(32)
        x = rng.random()
        if x < 0.52:
            return dataclasses.replace(self._write(), look=look)
        if x < 0.60:
            return dataclasses.replace(self._apply(), look=look)
        if x < 0.67:
            calls = [self._write() if rng.random() < 0.8 else self._apply() for _ in range(rng.randint(0, 4))]
            return Batch(calls, self._on_error(), broken=rng.random() < 0.1, look=look)
        if x < 0.71:
            return DeleteWhere(self.predicate(), look)
        if x < 0.75 and self.made.values:
            return self._update_where(look)
        if x < 0.78:
            return Invalid(rng.choice(sorted(_INVALID)), look)
        return Do(
            rng.choice(("flush", "flush", "flush", "merge", "reopen", "reader", "refresh", "pin", "release")),
            look,
        )

    def _on_error(self) -> str:
        return self.rng.choice(("raise", "return"))

    def _write(self) -> Write:
        rng = self.rng
        op = rng.choice((*OPS, "upsert", "insert_ignore", "upsert"))
        columns = self._given(op)
        rows = [self._row(columns) for _ in range(self._count())]
        return Write(op, columns, rows, self._on_error(), rng.choice(FORMS))

    def _apply(self) -> Apply:
        columns = self._given("update")
        count = self._count() if len(columns) > len(self.made.key) else 0
        rows = [self._row(columns) for _ in range(count)]
        return Apply(
            [self.rng.choice(OPS) for _ in rows], columns, rows, self._on_error(), self.rng.choice(FORMS)
        )

    def _count(self) -> int:
        return self.rng.choice((0, 1, 1, 1, 2, 3, 5, 12, 40, 90))

    def _given(self, op: str) -> tuple[str, ...]:
        """Columns of a call, in any order; mostly such that the call as a whole is allowed."""
        rng, kind = self.rng, op.split("_", maxsplit=1)[0]
        names = [c.name for c in self.made.values if rng.random() < 0.7]
        if kind == "delete":
            names = []
        elif kind == "insert":
            names += [c.name for c in self.made.values if _needed(c) and c.name not in names]
        elif kind == "update" and not names:
            names = [c.name for c in self.made.values[:1]]
        given = [*self.made.key, *names]
        if rng.random() < 0.2:
            rng.shuffle(given)
        return tuple(given)

    def _row(self, columns: tuple[str, ...]) -> tuple[Cell, ...]:
        return tuple(self._cell(name) for name in columns)

    def _cell(self, name: str) -> Cell:
        rng, column = self.rng, self.made.by_name(name)
        if name in self.made.key or not column.nullable:
            if rng.random() < 0.01:
                return None
        elif rng.random() < 0.2:
            return None
        if name in self.made.key and rng.random() < 0.003 and column.type in ("string", "binary"):
            return "k" * 20_000 if column.type == "string" else b"k" * 20_000
        return rng.choice(self.pools[name])

    def _update_where(self, look: int) -> UpdateWhere:
        rng, new = self.rng, {}
        for column in rng.sample(self.made.values, rng.randint(1, min(3, len(self.made.values)))):
            same = [c.name for c in self.made.columns if c.type == column.type]
            new[column.name] = ("old", rng.choice(same)) if rng.random() < 0.3 else self._cell(column.name)
        return UpdateWhere(self.predicate(), new, look)

    def predicate(self) -> Predicate:
        return random_predicate(self.rng, self.made)


def _needed(column: Col) -> bool:
    return not column.nullable and column.default is None


def _defaults(type_name: str) -> list[Cell]:
    """Cells that Python can hold, NaN excepted."""
    type_ = cells.arrow_type(type_name)
    if pa.types.is_floating(type_):
        bits = cells.bits64 if pa.types.is_float64(type_) else cells.bits32
        return [bits(0.0), bits(-0.0), bits(2.5), bits(float("inf"))]
    if pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        return [0, 1, -1]
    return [c for c in cells.ugly(type_) if not (isinstance(c, str) and c == "")] or [None]


def random_predicate(rng: random.Random, case: Case, depth: int = 2) -> Predicate:
    """Any kind of predicate over any column."""
    if depth == 2 and rng.random() < 0.15:
        return (
            "dnf",
            [[_triple(rng, case) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 3))],
        )
    if depth and rng.random() < 0.45:
        kind = rng.choice(("and", "and", "or", "not"))
        if kind == "not":
            return (kind, random_predicate(rng, case, depth - 1))
        return (kind, random_predicate(rng, case, depth - 1), random_predicate(rng, case, depth - 1))
    column = rng.choice(case.columns)
    pool = cells.ugly(column.arrow)
    x = rng.random()
    if x < 0.5:
        return ("cmp", column.name, rng.choice(("==", "!=", "<", "<=", ">", ">=")), rng.choice(pool))
    if x < 0.65:
        listed = rng.sample(list(pool), min(len(pool), rng.choice((1, 2, 4))))
        return ("in", column.name, [*listed, None] if rng.random() < 0.2 else listed)
    if x < 0.8:
        return (rng.choice(("null", "valid")), column.name)
    if x < 0.85:
        return ("const", rng.random() < 0.5)
    if x < 0.9:
        same = [c.name for c in case.columns if c.type == column.type]
        return ("same", column.name, rng.choice(same))
    if column.type == "string":
        return (rng.choice(("starts", "contains")), column.name, rng.choice(("", "a", "https", "\0", "é")))
    if column.type in ("float32", "float64"):
        return ("nan", column.name)
    if column.type == "bool":
        return ("flag", column.name)
    return ("valid", column.name)


def _triple(rng: random.Random, case: Case) -> tuple[str, str, Any]:
    column = rng.choice(case.columns)
    pool = list(cells.ugly(column.arrow))
    op = rng.choice(("=", "==", "!=", "<", "<=", ">", ">=", "in", "not in"))
    return (column.name, op, rng.sample(pool, min(2, len(pool))) if "in" in op else rng.choice(pool))


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_COMPARE["="] = _COMPARE["=="]


def expression(case: Case, p: Predicate) -> pc.Expression:
    """The predicate for pyarrow, which says what it means."""
    kind = p[0]
    if kind == "dnf":
        result = None
        for group in p[1]:
            every = None
            for name, op, given in group:
                one = _triple_expression(case, name, op, given)
                every = one if every is None else every & one
            result = every if result is None else result | every
        return result
    if kind in ("and", "or"):
        left, right = expression(case, p[1]), expression(case, p[2])
        return left & right if kind == "and" else left | right
    if kind == "not":
        return ~expression(case, p[1])
    if kind == "const":
        return pc.scalar(p[1])
    field = pc.field(p[1])
    if kind == "same":
        return field == pc.field(p[2])
    if kind == "cmp":
        return _COMPARE[p[2]](field, pc.scalar(cells.scalar(p[3], case.by_name(p[1]).arrow)))
    if kind == "in":
        return field.isin(cells.to_arrow(p[2], case.by_name(p[1]).arrow))
    simple = {
        "null": lambda: field.is_null(),
        "valid": lambda: field.is_valid(),
        "nan": lambda: pc.is_nan(field),
        "flag": lambda: field,
        "starts": lambda: pc.starts_with(field, p[2]),
        "contains": lambda: pc.match_substring(field, p[2]),
    }
    return simple[kind]()


def _triple_expression(case: Case, name: str, op: str, given: Any) -> pc.Expression:
    type_ = case.by_name(name).arrow
    if op in ("in", "not in"):
        found = pc.field(name).isin(cells.to_arrow(given, type_))
        return ~found if op == "not in" else found
    return _COMPARE[op](pc.field(name), pc.scalar(cells.scalar(given, type_)))


def argument(case: Case, p: Predicate) -> Any:
    """The predicate as ``where=`` is given it."""
    if p[0] != "dnf":
        return expression(case, p)
    return [
        [
            (name, op, cells.to_arrow(given, case.by_name(name).arrow))
            if isinstance(given, list)
            else (name, op, cells.scalar(given, case.by_name(name).arrow))
            for name, op, given in group
        ]
        for group in p[1]
    ]


# ------------------------------------------------------------------------------------- running cases


def replay(case: Case, seconds: float = float("inf")) -> int:
    """Run a case against the model.  Returns how many steps it did; ``Disagree`` says where it failed."""
    directory = tempfile.mkdtemp(prefix="kudu-core-differential-", dir=_MEMORY)
    before = os.environ.pop("KUDU_CORE_CHECK", None)
    if case.check:
        os.environ["KUDU_CORE_CHECK"] = "1"
    until, done = time.monotonic() + seconds, 0
    try:
        with _Pair(case, directory) as pair:
            for number, step in enumerate(case.steps):
                if time.monotonic() > until:
                    break
                try:
                    pair.do(step)
                    pair.look(random.Random(step.look))
                except Disagree as error:
                    raise Disagree(f"step {number}, {type(step).__name__}: {error}") from error
                except Exception as error:
                    raise Disagree(
                        f"step {number}, {type(step).__name__}: {type(error).__name__}: {error}"
                    ) from error
                done += 1
            pair.do(Do("reopen"))
            pair.look(random.Random(0), thorough=True)
    finally:
        os.environ.pop("KUDU_CORE_CHECK", None)
        if before is not None:
            os.environ["KUDU_CORE_CHECK"] = before
        shutil.rmtree(directory, ignore_errors=True)
    return done


def _same(found: Any, wanted: Any, what: str) -> None:
    if found != wanted:
        raise Disagree(f"{what}: found {_short(found)}, wanted {_short(wanted)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 600 else f"{text[:600]} ... ({len(text)} characters)"


@dataclass
class _Pinned:
    snapshot: kc.Snapshot
    state: State
    scan: Iterator[pa.RecordBatch]
    begun: list[pa.RecordBatch]


class _Pair:
    """A table and its model."""

    def __init__(self, case: Case, directory: str) -> None:
        self.case = case
        self.path = f"{directory}/t"
        self.schema = case.arrow
        self.model = TableModel(
            case.key,
            {c.name: c.default for c in case.values},
            required=[c.name for c in case.values if not c.nullable],
            accepts=self._accepts,
        )
        self.names = [*case.key, *self.model.values]
        self.timeline = Timeline()
        self.pinned: _Pinned | None = None
        self.reader: kc.Table | None = None
        self.readers = ExitStack()
        partition_by: list[Any] = [kc.HashPartition(names, buckets) for names, buckets in case.hashes]
        if case.ranges:
            type_ = case.by_name(case.key[0]).arrow
            bounds = [
                tuple(None if edge is None else cells.scalar(edge, type_) for edge in r) for r in case.ranges
            ]
            partition_by.append(kc.RangePartition([case.key[0]], bounds))
        declared = [
            kc.Column(c.name, c.arrow, c.nullable, None if c.default is None else self._python(c))
            for c in case.columns
        ]
        self.table = kc.create_table(
            self.path, declared, list(case.key), partition_by=partition_by, options=case.options
        )

    def __enter__(self) -> _Pair:
        return self

    def __exit__(self, *exc: object) -> None:
        self._release()
        if self.reader is not None:
            self.reader.close()
        self.table.close()

    @staticmethod
    def _python(column: Col) -> Any:
        return cells.scalar(column.default, column.arrow).as_py()

    def _accepts(self, key: Key) -> str | None:
        if self.case.ranges:
            first = order_of(key)[0]
            inside = any(
                (low is None or order_of((low,))[0] <= first)
                and (high is None or first < order_of((high,))[0])
                for low, high in self.case.ranges
            )
            if not inside:
                return "no_partition"
        if any(isinstance(cell, str | bytes) and len(cell) > 16_384 for cell in key):
            return "too_large"
        return None

    # ---- steps

    def do(self, step: Step) -> None:
        if isinstance(step, Write | Apply):
            self._write([step], step.on_error, lambda: _send(self.table, self.case, step, step.on_error))
        elif isinstance(step, Batch):
            self._batch(step)
        elif isinstance(step, DeleteWhere):
            self._delete_where(step)
        elif isinstance(step, UpdateWhere):
            self._update_where(step)
        elif isinstance(step, Invalid):
            self._invalid(step)
        else:
            {
                "flush": self.table.flush,
                "merge": self._merge,
                "reopen": self._reopen,
                "reader": self._read_elsewhere,
                "refresh": self._refresh,
                "pin": self._pin,
                "release": self._release,
            }[step.what]()

    def _write(
        self, calls: Sequence[Write | Apply], on_error: str, send: Callable[[], kc.WriteResult]
    ) -> None:
        wrong = next(filter(None, (self._not_allowed(call) for call in calls)), None)
        after, outcome = self.model.copy(), Outcome()
        if wrong is None:
            for call in calls:
                rows = [dict(zip(call.columns, row, strict=True)) for row in call.rows]
                after.call(call.op if isinstance(call, Write) else call.ops, rows, outcome)
        try:
            result = send()
        except kc.RowErrors as error:
            if wrong is not None or on_error != "raise":
                raise
            _same(_errors(error.errors), outcome.errors, "errors raised")
            return
        except kc.InvalidArgument as error:
            if wrong is None:
                raise
            _same(type(error), wrong, "what was raised")
            return
        if wrong is not None:
            raise Disagree(f"{wrong.__name__} was not raised")
        if outcome.errors and on_error == "raise":
            raise Disagree(f"RowErrors was not raised: {outcome.errors}")
        _same(result.counts, outcome.counts, "counts")
        _same([] if result.errors is None else _errors(result.errors), outcome.errors, "errors returned")
        self._committed(result, after)

    def _not_allowed(self, call: Write | Apply) -> type[Exception] | None:
        """What is raised for a call that no row of it could mend."""
        if call.form in ("batches", "python") and not call.rows:
            return None  # nothing came, so there were no columns to look at
        beside = [c for c in call.columns if c not in self.case.key]
        if isinstance(call, Write):
            if call.op.startswith("update") and not beside:
                return kc.InvalidArgument
            if call.op.startswith("insert") and any(
                _needed(c) and c.name not in call.columns for c in self.case.values
            ):
                return kc.SchemaMismatch
        return None

    def _committed(self, result: kc.WriteResult, after: TableModel) -> None:
        """The result's timestamp is where the new state begins; nothing changed before it."""
        if after.state() == self.model.state() and result.timestamp == self.timeline.times[-1]:
            return
        self.model = after
        self.timeline.commit(result.timestamp, after.state())
        _same(self.table.timestamp >= result.timestamp, True, "a write is visible when it returns")

    def _batch(self, step: Batch) -> None:
        def send() -> kc.WriteResult:
            with self.table.batch(on_error=step.on_error) as batch:
                for call in step.calls:
                    _send(batch, self.case, call, None)
            assert batch.result is not None
            return batch.result

        if not step.broken:
            self._write(step.calls, step.on_error, send)
            return
        with suppress(kc.InvalidArgument, ZeroDivisionError), self.table.batch() as batch:
            for call in step.calls:
                _send(batch, self.case, call, None)
            raise ZeroDivisionError

    def _merge(self) -> None:
        engine = self.table._engine
        assert engine.compactions is not None
        for tablet in engine.tablets:
            ids = [rowset.id for rowset in tablet.view.rowsets]
            if ids:
                engine.compactions.merge(tablet, ids)

    def _delete_where(self, step: DeleteWhere) -> None:
        keys = [row[: len(self.case.key)] for row in self._matching(self.model.state(), step.where)]
        after = self.model.copy()
        outcome = after.call("delete", [dict(zip(self.case.key, key, strict=True)) for key in keys])
        result = self.table.delete(where=argument(self.case, step.where))
        _same(result.counts, outcome.counts, "counts")
        self._committed(result, after)

    def _update_where(self, step: UpdateWhere) -> None:
        after, rows = self.model.copy(), []
        for old in self._matching(self.model.state(), step.where):
            row = dict(zip(self.names, old, strict=True))
            new = {n: row[v[1]] if isinstance(v, tuple) else v for n, v in step.set.items()}
            rows.append({**{k: row[k] for k in self.case.key}, **new})
        outcome = after.call("update", rows)
        set_ = {
            name: pc.field(given[1])
            if isinstance(given, tuple)
            else pc.scalar(cells.scalar(given, self.case.by_name(name).arrow))
            for name, given in step.set.items()
        }
        try:
            result = self.table.update(where=argument(self.case, step.where), set=set_)
        except kc.InvalidArgument:
            if not outcome.errors:
                raise
            return
        _same(outcome.errors, [], "a NULL where none is allowed was not refused")
        _same(result.counts, outcome.counts, "counts")
        self._committed(result, after)

    def _invalid(self, step: Invalid) -> None:
        try:
            _INVALID[step.kind](self)
        except (kc.InvalidArgument, ZeroDivisionError):
            return
        raise Disagree(f"{step.kind} was not refused")

    def _reopen(self) -> None:
        self._release()
        self.table.close()
        self.table = kc.open_table(self.path, "rw")
        visible = self.table.timestamp
        if visible < self.timeline.times[-1]:
            raise Disagree(f"after a close only {visible} of {self.timeline.times[-1]} is visible")

    def _read_elsewhere(self) -> None:
        with kc.open_table(self.path) as reader:
            self._check_reader(reader)

    def _refresh(self) -> None:
        if self.reader is None:
            self.reader = kc.open_table(self.path)
        else:
            before = self.reader.timestamp
            self.reader.refresh()
            _same(self.reader.timestamp >= before, True, "refresh does not go back")
        self._check_reader(self.reader)

    def _check_reader(self, reader: kc.Table) -> None:
        seen = reader.timestamp
        if self.case.options["durability"] == "sync" and seen < self.timeline.times[-1]:
            raise Disagree(f"a reader sees {seen}, but {self.timeline.times[-1]} was acknowledged")
        _Look(self, reader, random.Random(seen), self.timeline.at(seen), None).everything()

    def _pin(self) -> None:
        self._release()
        snapshot = self.table.snapshot()
        scan = iter(snapshot.scan(self.names, batch_rows=3))
        begun = [batch for batch in (next(scan, None),) if batch is not None]
        self.pinned = _Pinned(snapshot, self.model.state(), scan, begun)

    def _release(self) -> None:
        if self.pinned is None:
            return
        pinned, self.pinned = self.pinned, None
        table = pa.Table.from_batches([*pinned.begun, *pinned.scan], schema=self._projected(self.names))
        _check_state(self, table, pinned.state, "a scan begun before")
        _Look(self, self.table, random.Random(1), pinned.state, pinned.snapshot).whole()
        pinned.snapshot.close()

    # ---- looking

    def look(self, rng: random.Random, *, thorough: bool = False) -> None:
        now = _Look(self, self.table, rng, self.model.state(), None)
        now.everything() if thorough or rng.random() < 0.05 else now.something()
        if self.pinned is not None and rng.random() < 0.2:
            _Look(self, self.table, rng, self.pinned.state, self.pinned.snapshot).something()
        if rng.random() < 0.3:
            at = rng.choice(self.timeline.times)
            at = max(at - 1, self.table_created) if rng.random() < 0.3 else at
            if at:
                _Look(self, self.table, rng, self.timeline.at(at), at).something()

    table_created = 0

    def _projected(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.table.schema.field(n) for n in names])

    def _matching(self, state: State, where: Predicate | None) -> list[tuple[Cell, ...]]:
        """Whole rows that match, in key order, as pyarrow says."""
        rows = [(*key, *state[key]) for key in sorted(state, key=order_of)]
        if where is None or not rows:
            return rows
        arrays = [
            cells.to_arrow(column, self.case.by_name(name).arrow)
            for name, column in zip(self.names, zip(*rows, strict=True), strict=True)
        ]
        numbered = pa.table([*arrays, pa.array(range(len(rows)))], names=[*self.names, "number of row"])
        found = numbered.filter(expression(self.case, where))
        return [rows[i] for i in found["number of row"].to_pylist()]


def _check_state(pair: _Pair, table: pa.Table, wanted: State, what: str) -> None:
    width, found = len(pair.case.key), {}
    for row in cells.rows_of(table):
        if row[:width] in found:
            raise Disagree(f"{what}: key {row[:width]!r} came twice")
        found[row[:width]] = row[width:]
    if found != wanted:
        raise Disagree(f"{what}: {difference(found, wanted)}")


class _Look:
    """Reads of one state, compared with the model."""

    def __init__(self, pair: _Pair, table: kc.Table, rng: random.Random, state: State, at: Any) -> None:
        self.pair, self.table, self.rng, self.state, self.at = pair, table, rng, state, at
        self.case = pair.case

    def everything(self) -> None:
        for check in (self.whole, self.ordered, self.points, self.many, self.tokens, self.counted):
            check()
        for _ in range(6):
            self.filtered()
            self.ranged()

    def something(self) -> None:
        self.whole()
        for check in self.rng.sample(
            (self.ordered, self.points, self.many, self.tokens, self.counted, self.filtered, self.filtered,
             self.filtered, self.ranged, self.ranged), 2
        ):  # fmt: skip
            check()

    def whole(self) -> None:
        scan = self.table.scan(self.pair.names, at=self.at, batch_rows=self._batch_rows())
        _check_state(self.pair, scan.to_table(), self.state, "scan")

    def ordered(self) -> None:
        self._compare(None, ordered=True)

    def filtered(self) -> None:
        self._compare(random_predicate(self.rng, self.case), ordered=self.rng.random() < 0.4)

    def ranged(self) -> None:
        where = random_predicate(self.rng, self.case) if self.rng.random() < 0.3 else None
        bounds = (self._bound(), self._bound())
        self._compare(where, ordered=self.rng.random() < 0.6, bounds=bounds)

    def _bound(self) -> tuple[Cell, ...] | None:
        """A key, near a key or a prefix of one; None for an open end."""
        if self.rng.random() < 0.2:
            return None
        if self.state and self.rng.random() < 0.5:
            key = self.rng.choice(list(self.state))
        else:
            key = tuple(self.rng.choice(cells.ugly(self.case.by_name(n).arrow)) for n in self.case.key)
        return key[: self.rng.randint(1, len(key))]

    def _batch_rows(self) -> int:
        return self.rng.choice((1, 2, 7, 65_536, 65_536, 65_536, 65_536, 65_536))

    def _compare(
        self,
        where: Predicate | None,
        *,
        ordered: bool,
        bounds: tuple[tuple[Cell, ...] | None, tuple[Cell, ...] | None] = (None, None),
    ) -> None:
        rng = self.rng
        names = rng.sample(self.pair.names, rng.randint(0, len(self.pair.names)))
        limit = rng.choice((None, None, None, 0, 1, 5, 10**6))
        wanted = [row for row in self.pair._matching(self.state, where) if _inside(row, bounds)]
        scan = self.table.scan(
            names,
            None if where is None else argument(self.case, where),
            at=self.at,
            key_range=tuple(None if b is None else self._python_key(b) for b in bounds),
            order="key" if ordered else "any",
            limit=limit,
            batch_rows=self._batch_rows(),
        )
        what = (
            f"scan({names}, where={where!r}, key_range={bounds!r}, order={'key' if ordered else 'any'}, "
            f"limit={limit}, at={self.at!r})"
        )
        table = scan.to_table()
        _same(table.schema, self.pair._projected(names), f"{what}: schema")
        found = cells.rows_of(table)
        at = [self.pair.names.index(n) for n in names]
        expected = [tuple(row[i] for i in at) for row in wanted]
        count = len(expected) if limit is None else min(limit, len(expected))
        _same(len(found), count, f"{what}: rows")
        _same(scan.count(), count, f"{what}: count()")
        if ordered:
            _same(found, expected[:count], what)
        elif count == len(expected):
            _same(sorted(map(repr, found)), sorted(map(repr, expected)), what)
        elif not set(map(repr, found)) <= set(map(repr, expected)):
            raise Disagree(f"{what}: rows that do not match, {_short(found)}")

    def counted(self) -> None:
        _same(self.table.count(at=self.at), len(self.state), "count()")

    def _python_key(self, key: tuple[Cell, ...]) -> tuple[Any, ...]:
        return tuple(
            cells.scalar(cell, self.case.by_name(name).arrow)
            for cell, name in zip(key, self.case.key, strict=False)
        )

    def _some_keys(self, count: int) -> list[Key]:
        there = list(self.state)
        keys = [self.rng.choice(there) for _ in range(count) if there]
        keys += [
            tuple(self.rng.choice(cells.ugly(self.case.by_name(n).arrow)) for n in self.case.key)
            for _ in range(2)
        ]
        self.rng.shuffle(keys)
        return keys

    def points(self) -> None:
        for key in self._some_keys(3):
            names = self.rng.sample(self.pair.names, self.rng.randint(0, len(self.pair.names)))
            row = self.state.get(key)
            wanted: Any = None
            if row is not None:
                whole = dict(zip(self.pair.names, (*key, *row), strict=True))
                wanted = {n: _as_float(self.case.by_name(n), whole[n]) for n in names}
            given: Any = self._python_key(key)
            if len(given) == 1 and self.rng.random() < 0.5:
                given = given[0]
            elif self.rng.random() < 0.5:
                given = dict(zip(self.case.key, given, strict=True))
            try:
                found = self.table.get(given, names, self.at)
            except kc.InvalidArgument:
                # A date that Python cannot hold.
                if wanted is None or not any(_beyond(self.case.by_name(n), c) for n, c in wanted.items()):
                    raise
                continue
            if found is not None:
                found = {n: _cell_of(self.case.by_name(n), v) for n, v in found.items()}
            _same(found, wanted, f"get({key!r}, {names}, at={self.at!r})")

    def many(self) -> None:
        keys = self._some_keys(self.rng.choice((0, 5, 30)))
        arrays = [
            cells.to_arrow((k[i] for k in keys), self.case.by_name(n).arrow)
            for i, n in enumerate(self.case.key)
        ]
        given = pa.table(arrays, names=list(self.case.key))
        table = self.table.get_many(given, self.pair.names, self.at)
        nothing = (None,) * len(self.model_values)
        wanted = [(*key, *self.state.get(key, nothing), key in self.state) for key in keys]
        _same(cells.rows_of(table), wanted, f"get_many({keys!r}, at={self.at!r})")

    @property
    def model_values(self) -> tuple[str, ...]:
        return self.pair.model.values

    def tokens(self) -> None:
        where = random_predicate(self.rng, self.case) if self.rng.random() < 0.5 else None
        names = self.rng.sample(self.pair.names, self.rng.randint(1, len(self.pair.names)))
        tokens = self.table.scan_tokens(
            names,
            None if where is None else argument(self.case, where),
            at=self.at,
            target_rows=self.rng.choice((1, 4, 50, 10**6)),
        )
        tokens = pickle.loads(pickle.dumps(tokens))
        found = [row for token in tokens for row in cells.rows_of(self.table.scan_token(token).to_table())]
        at = [self.pair.names.index(n) for n in names]
        wanted = [tuple(row[i] for i in at) for row in self.pair._matching(self.state, where)]
        _same(sorted(map(repr, found)), sorted(map(repr, wanted)), f"tokens of {names}, where={where!r}")


def _inside(row: tuple[Cell, ...], bounds: tuple[tuple[Cell, ...] | None, tuple[Cell, ...] | None]) -> bool:
    lower, upper = (None if b is None else order_of(b) for b in bounds)
    key = order_of(row)
    return (lower is None or key[: len(lower)] >= lower) and (upper is None or key[: len(upper)] < upper)


def _beyond(column: Col, cell: Cell) -> bool:
    if cell is None or not (column.type == "date32" or column.type.startswith("timestamp")):
        return False
    try:
        cells.scalar(cell, column.arrow).as_py()
    except (OverflowError, ValueError):
        return True
    return False


def _cell_of(column: Col, value: Any) -> Cell:
    """A value of ``get`` as a cell."""
    if value is None:
        return None
    if column.type == "float32":
        return cells.bits32(value)
    if column.type == "float64":
        return cells.bits64(value)
    return cells.from_arrow(pa.array([value], column.arrow))[0]


def _as_float(column: Col, cell: Cell) -> Cell:
    """A float32 becomes a Python float and back: a signalling NaN is quiet then."""
    if cell is None or column.type != "float32":
        return cell
    return cells.bits32(cells.scalar(cell, column.arrow).as_py())


def _errors(table: pa.Table) -> list[tuple[int, str]]:
    return list(zip(table["row"].to_pylist(), table["code"].to_pylist(), strict=True))


# ---- how data is handed over


def _send(target: Any, case: Case, call: Write | Apply, on_error: str | None) -> Any:
    """Make one call on a table, or on a batch (``on_error`` None)."""
    more: dict[str, Any] = {} if on_error is None else {"on_error": on_error}
    if isinstance(call, Apply):
        return target.apply(_data(case, call), **more)
    kind, _, ignore = call.op.partition("_")
    if ignore:
        more["on_conflict" if kind == "insert" else "on_missing"] = "ignore"
    return getattr(target, kind)(_data(case, call), **more)


def _data(case: Case, call: Write | Apply) -> Any:
    """The rows of a call in one of the forms that writes take."""
    arrays = [
        cells.to_arrow((row[i] for row in call.rows), case.by_name(name).arrow)
        for i, name in enumerate(call.columns)
    ]
    names = list(call.columns)
    if isinstance(call, Apply):
        arrays.append(pa.array(call.ops, pa.string()))
        names.append("_op")
    if call.form == "python" and not any(_beyond_python(a) for a in arrays):
        # Values without an Arrow type; one row alone has a path of its own.
        return [
            dict(zip(names, row, strict=True)) for row in zip(*(a.to_pylist() for a in arrays), strict=True)
        ]
    if call.form == "kin":
        arrays = [_kin(a) for a in arrays]
    table = pa.table(arrays, names=names)
    if call.form == "dict":
        return dict(zip(names, arrays, strict=True))
    if call.form == "batches":
        return (batch for batch in table.to_batches(max_chunksize=3))
    if call.form == "reader":
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7))
    if call.form == "pieces":  # slices that do not begin at a byte of the validity bitmap
        padded = pa.concat_tables([table.slice(0, 3), table]) if table.num_rows > 2 else table
        return padded.slice(padded.num_rows - table.num_rows)
    return table


def _beyond_python(array: pa.Array) -> bool:
    """Whether Python would change or refuse a cell: far dates, float32 NaN of another kind."""
    try:
        array.to_pylist()
    except (OverflowError, ValueError):
        return True
    if not pa.types.is_float32(array.type):
        return False
    cells_ = [c for c in cells.from_arrow(array) if c is not None]
    return any(c != cells.bits32(cells.scalar(c, array.type).as_py()) for c in cells_)


def _kin(array: pa.Array) -> pa.Array:
    """The same cells in another type that a table takes."""
    type_ = array.type
    if pa.types.is_string(type_):
        return array.dictionary_encode() if len(array) % 2 else array.cast(pa.large_string())
    if pa.types.is_binary(type_):
        return array.cast(pa.large_binary())
    if pa.types.is_integer(type_) and type_.bit_width < 64:
        return array.cast(pa.int64())
    if pa.types.is_float32(type_):
        return array
    if pa.types.is_decimal(type_) and type_.precision < 38:
        return array.cast(pa.decimal128(38, type_.scale))
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return array.cast(pa.timestamp("us", "Europe/Berlin"))
    return array


# ---- calls that are refused as a whole


def _first(pair: _Pair) -> dict[str, pa.Array]:
    return {
        n: cells.to_arrow([0 if n == "_" else _any(pair, n)], pair.case.by_name(n).arrow) for n in pair.names
    }


def _any(pair: _Pair, name: str) -> Cell:
    return cells.ugly(pair.case.by_name(name).arrow)[0]


def _raising(pair: _Pair) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict(_first(pair))
    raise ZeroDivisionError


_INVALID: dict[str, Callable[[_Pair], Any]] = {
    "unknown column": lambda p: p.table.upsert({**_first(p), "nobody": [1]}),
    "missing key column": lambda p: p.table.upsert({p.case.columns[0].name + "x": [1]}),
    "wrong type": lambda p: p.table.upsert({**_first(p), p.case.key[0]: pa.array([[1]])}),
    "lossy type": lambda p: p.table.upsert({**_first(p), p.case.key[-1]: pa.array([0.5])}),
    "generator raises": lambda p: p.table.upsert(_raising(p)),
    "unequal lengths": lambda p: p.table.apply({**_first(p), "_op": ["upsert", "upsert"]}),
    "unknown operation": lambda p: p.table.apply({**_first(p), "_op": ["destroy"]}),
    "operation missing": lambda p: p.table.apply(_first(p)),
    "on_error": lambda p: p.table.upsert(_first(p), on_error="ignore"),
    "where column": lambda p: p.table.delete(where=[("nobody", "=", 1)]),
    "nothing to delete by": lambda p: p.table.delete(),
    "set a key": lambda p: p.table.update(
        where=[(p.case.key[0], "in", [])], set={p.case.key[0]: pc.field(p.case.key[0])}
    ),
    "raises in a batch": lambda p: _raise_in_batch(p),
}


def _raise_in_batch(pair: _Pair) -> None:
    with pair.table.batch() as batch:
        batch.upsert(_first(pair))
        raise ZeroDivisionError


# ------------------------------------------------------------------------------------- shrinking


def shrink(case: Case, fails: Callable[[Case], bool], seconds: float = 60.0) -> Case:
    """The case without the steps, rows, columns and options that its failure does not need."""
    until = time.monotonic() + seconds

    def smaller(items: list[Any], rebuilt: Callable[[list[Any]], Case]) -> list[Any]:
        """Leave out runs of items, long ones first, while the case still fails."""
        size = max(1, len(items) // 2)
        while items and time.monotonic() < until:
            start, dropped = 0, False
            while start < len(items) and time.monotonic() < until:
                fewer = items[:start] + items[start + size :]
                if fails(rebuilt(fewer)):
                    items, dropped = fewer, True
                else:
                    start += size
            if size == 1 and not dropped:
                break
            size = max(1, size // 2)
        return items

    case = dataclasses.replace(
        case, steps=smaller(case.steps, lambda steps: dataclasses.replace(case, steps=steps))
    )
    for plain in ({"check": False}, {"hashes": ()}, {"ranges": ()}):
        if fails(dataclasses.replace(case, **plain)):  # type: ignore[arg-type]
            case = dataclasses.replace(case, **plain)  # type: ignore[arg-type]
    for number in range(len(case.steps)):
        case = _with_smaller_step(case, number, smaller)
    return case


def _with_smaller_step(
    case: Case, number: int, smaller: Callable[[list[Any], Callable[[list[Any]], Case]], list[Any]]
) -> Case:
    """The case with fewer rows, or calls, in one step."""
    step = case.steps[number]

    def holding(items: list[Any]) -> Step:
        if isinstance(step, Apply):
            return dataclasses.replace(step, ops=[op for op, _ in items], rows=[row for _, row in items])
        name = "calls" if isinstance(step, Batch) else "rows"
        return dataclasses.replace(step, **{name: items})

    def rebuilt(items: list[Any]) -> Case:
        return dataclasses.replace(
            case, steps=[*case.steps[:number], holding(items), *case.steps[number + 1 :]]
        )

    if isinstance(step, Write):
        return rebuilt(smaller(step.rows, rebuilt))
    if isinstance(step, Apply):
        return rebuilt(smaller(list(zip(step.ops, step.rows, strict=True)), rebuilt))
    if isinstance(step, Batch):
        return rebuilt(smaller(step.calls, rebuilt))
    return case


def failure_of(case: Case) -> str | None:
    """Why a case fails, or None."""
    try:
        replay(case)
    except Disagree as error:
        return str(error)
    return None
