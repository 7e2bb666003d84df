"""Every type of column beside constants of every kind: a row is found, or nothing is for a reason, or the
constant is refused with a sentence.  None is compared with a column that can never have it."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.tables import Make

ID = uuid.UUID(int=5)
NOON = dt.datetime(2020, 1, 5, 10, 30)
ZONED = NOON.replace(tzinfo=dt.UTC)
INTERVAL = pa.MonthDayNano((1, 2, 3))
CELLS: dict[str, tuple[pa.DataType, Any]] = {
    **{f"{sign}int{bits}": (getattr(pa, f"{sign}int{bits}")(), 7) for sign in ("", "u") for bits in (8, 64)},
    **{f"float{bits}": (getattr(pa, f"float{bits}")(), 1.5) for bits in (16, 32, 64)},
    "bool": (pa.bool_(), True),
    "bool8": (pa.bool8(), True),
    "string": (pa.string(), "abc"),
    "large_string": (pa.large_string(), "abc"),
    "string_view": (pa.string_view(), "abc"),
    "json": (pa.json_(), "[1]"),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), "abc"),
    "binary": (pa.binary(), b"abc"),
    "large_binary": (pa.large_binary(), b"abc"),
    "binary_view": (pa.binary_view(), b"abc"),
    "fixed": (pa.binary(3), b"abc"),
    "uuid": (pa.uuid(), ID),
    "date32": (pa.date32(), NOON.date()),
    "date64": (pa.date64(), NOON.date()),
    "time32": (pa.time32("s"), NOON.time()),
    "time64": (pa.time64("ns"), NOON.time()),
    "timestamp": (pa.timestamp("us"), NOON),
    "zoned": (pa.timestamp("ms", "Europe/Berlin"), ZONED),
    "duration": (pa.duration("s"), dt.timedelta(seconds=5)),
    "interval": (pa.month_day_nano_interval(), INTERVAL),
    **{f"decimal{bits}": (make_(digits, 2), Decimal("1.50")) for bits, make_, digits in (
        (32, pa.decimal32, 5), (64, pa.decimal64, 12), (128, pa.decimal128, 20), (256, pa.decimal256, 50))},
}  # fmt: skip
KINDS: dict[str, Callable[[Any], Any]] = {
    "own": lambda cell: cell,
    "text": lambda cell: cell.decode() if isinstance(cell, bytes) else str(cell),
    "bytes": lambda cell: cell.bytes if isinstance(cell, uuid.UUID) else str(cell).encode(),
    "other text": lambda cell: "nonsense",
    "other bytes": lambda cell: b"ab",
    "integer": lambda cell: 1,
    "float": lambda cell: 2.5,
    "decimal": lambda cell: Decimal("2.5"),
    "truth": lambda cell: False,
    "date": lambda cell: NOON.date(),
    "time": lambda cell: NOON.time(),
    "timestamp": lambda cell: NOON,
    "zoned": lambda cell: ZONED,
    "duration": lambda cell: dt.timedelta(seconds=6),
    "interval": lambda cell: pa.MonthDayNano((1, 2, 4)),
    "uuid": lambda cell: uuid.UUID(int=6),
}
NUMBERS = {"integer", "float", "decimal", "truth"}
TEXTS = {"other text", "other bytes", "bytes", "uuid"}
MAY_FIND_NOTHING = {
    # Values that such a column may well have, and no row has.
    **{name: NUMBERS for name in CELLS if name.lstrip("u").startswith(("int", "float", "decimal"))},
    "bool": NUMBERS, "bool8": NUMBERS, "uuid": {"uuid"}, "interval": {"interval", "uuid"},
    **dict.fromkeys(("string", "large_string", "string_view", "json", "dictionary"), TEXTS),
    **dict.fromkeys(("binary", "large_binary", "binary_view"), TEXTS),
    "date32": {"timestamp", "zoned"}, "date64": {"timestamp", "zoned"},
    "timestamp": {"date"}, "zoned": {"date"}, "duration": {"duration"},
}  # fmt: skip
MUST_FIND = {("uuid", "text"), ("uuid", "bytes"), ("bool8", "own"), ("interval", "own"), ("fixed", "text")}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    schema = pa.schema([("k", pa.int64()), *((name, type_) for name, (type_, _) in CELLS.items())])
    with kc.create_table(str(tmp_path_factory.mktemp("types") / "t"), schema, "k") as made:
        made.insert([{"k": 0, **{name: cell for name, (_, cell) in CELLS.items()}}])
        made.flush()
        yield made


def outcomes(table: kc.Table, name: str, constant: Any) -> dict[str, int | None]:
    """Rows that are found, by the way of asking; None: refused with a sentence that names the predicate."""
    found: dict[str, int | None] = {}
    ways: dict[str, Callable[[], Any]] = {
        "==": lambda: pc.field(name) == constant,
        "isin": lambda: pc.field(name).isin([constant]),
        "list ==": lambda: [(name, "==", constant)],
        "list in": lambda: [(name, "in", [constant])],
    }
    for way, where in ways.items():
        try:
            found[way] = table.count(where())
        except kc.InvalidArgument as error:
            assert "where" in str(error) or "filter" in str(error)
            found[way] = None
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CELLS)
def test_a_constant_of_any_kind_finds_the_row_or_is_refused(table: kc.Table, name: str, kind: str) -> None:
    cell = CELLS[name][1]
    found = outcomes(table, name, KINDS[kind](cell))
    if kind == "own" or (name, kind) in MUST_FIND:
        # Beside a zone of its own Arrow compares no other; the sentence says what does.
        assert {way for way, rows in found.items() if rows != 1} <= ({"=="} if name == "zoned" else set())
    if kind not in MAY_FIND_NOTHING.get(name, set()):
        assert 0 not in found.values(), f"{name} beside {kind} is silent: {found}"


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (pc.field("uuid") == "nonsense", "'uuid' is uuid, which 'nonsense' is not; write a uuid.UUID"),
        (pc.field("uuid").isin([str(ID), "x"]), "'uuid' is uuid, which 'x' is not"),
        ([("uuid", "==", "nonsense")], "'uuid' is uuid, which 'nonsense' is not"),
        (pc.scalar(b"x") == pc.field("uuid"), "16 bytes; b'x' has 1, and is in no row"),
        ([("fixed", "not in", [b"abc", b"abcd"])], "3 bytes; b'abcd' has 4"),
        (pc.field("interval") < pa.scalar(INTERVAL), "of two intervals none is the smaller"),
        ([("interval", ">", INTERVAL)], "of two intervals none is the smaller"),
        ([("interval", "==", "P1M")], "write pyarrow.MonthDayNano"),
        (pc.field("duration").isin([5]), r"'duration' is duration\[s\], and the list is of int64"),
        (pc.field("int64").isin([NOON.date()]), "'int64' is int64, and the list is of date32"),
    ],
    ids=str,
)
def test_what_can_be_in_no_row_is_refused_with_what_to_write(table: kc.Table, where: Any, why: str) -> None:
    with pytest.raises(kc.InvalidArgument, match=why):
        table.count(where)


def test_text_of_a_uuid_prunes_orders_and_reaches_fields(make: Make) -> None:
    made = make(pa.schema([("k", pa.uuid()), ("s", pa.struct([("u", pa.uuid()), ("b", pa.bool8())]))]))
    made.insert([{"k": uuid.UUID(int=n), "s": {"u": uuid.UUID(int=n), "b": n > 5}} for n in range(10)])
    text = str(ID)
    assert made.count(pc.field("k") == text) == made.count(pc.field("k") == text.upper()) == 1
    assert made.count(pc.field("k") < text) == made.count([("k", "<", ID)]) == 5
    assert made.count(pc.field("s", "u") == text) == 1
    assert made.count(pc.field("s", "b") == True) == 4  # noqa: E712
    assert made.count(~pc.field("s", "u").isin([text, None])) == 9
    assert "keys" in str(made.scan(where=pc.field("k") == text).explain())
    made.update(where=pc.field("k") == text, set={"s.b": None})
    assert made.delete(where=pc.field("k") == text).deleted == 1
