"""Options of ``spark.read.format("kudu_core")`` and ``df.write.format("kudu_core")``, as text and parsed.

Spark hands them over as text under names whose case is lost.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from kudu_core.common.idempotence.writers import CHECK, Txn
from kudu_core.common.rows.shown import picked
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.types import TYPE_DECIMAL, ColumnType
from kudu_core.engines.spark.schema import projected
from kudu_core.errors import InvalidArgument
from kudu_core.table.jobs.commit import check_job
from kudu_core.table.lifecycle.handles import table_path
from kudu_core.table.read.tokens import DEFAULT_TARGET_ROWS

READ_OPTIONS = (
    "path", "columns", "where", "snapshot", "timestampAsOf", "targetRowsPerTask", "limit",
    "readChanges", "since", "until", "images", "net", "maxRowsPerTrigger",
)  # fmt: skip
STORAGE = "storage."
"""What the names of options begin with that are for the client of an object store, ``storage.endpoint``; of
``client_options`` there ``storage.client_options.timeout``."""
LATEST = "latest"
"""``since`` of a stream that leaves out what is there when it starts."""
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
WRITE_OPTIONS = (
    "path", "operation", "txnAppId", "txnVersion", "onRepeat", "onDuplicate", "sequenceBy", "ignoreNull",
    "lockTimeoutS",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read."""

    path: str
    columns: list[str] | None
    where: Any
    """JSON of pyarrow's filter lists, parsed but not yet in the columns' types; or SQL text."""
    at: int | datetime | None
    target_rows: int
    changes: bool = False
    """What changed, instead of what is there."""
    since: int | datetime | str | None = None
    """``LATEST`` is for streams."""
    until: int | datetime | None = None
    images: str = "after"
    net: bool = False
    limit: int | None = None
    max_rows: int | None = None
    """Of a batch of a stream, about."""
    storage: Mapping[str, Any] | None = field(default=None, repr=False)
    """``storage_options``."""

    @staticmethod
    def parse(given: Mapping[str, str], newest: int | None = None) -> ReadOptions:
        """``newest``: the moment of the read, and the end of changes, where no option gives another."""
        _check_names(given, READ_OPTIONS, WRITE_OPTIONS, "read", "write")
        snapshot, as_of = _get(given, "snapshot"), _get(given, "timestampAsOf")
        if snapshot is not None and as_of is not None:
            raise InvalidArgument("snapshot and timestampAsOf say the same thing; give one")
        at: int | datetime | None = None
        if snapshot is not None:
            at = _whole("snapshot", snapshot)
        elif as_of is not None:
            at = _instant("timestampAsOf", as_of)
        target, most = _get(given, "targetRowsPerTask"), _get(given, "maxRowsPerTrigger")
        limit = _get(given, "limit")
        changes, net = _truth(given, "readChanges"), _truth(given, "net")
        images = _get(given, "images") or "after"
        if not changes:
            for name in ("until", "images", "net"):
                if _get(given, name) is not None:
                    raise InvalidArgument(f"{name} is for changes: set readChanges to true as well")
        elif limit is not None:
            raise InvalidArgument("limit is for the rows of a table; changes end at until")
        elif at is not None:
            raise InvalidArgument("changes are read from since to until, not at a snapshot or timestampAsOf")
        if images not in ("after", "both"):
            raise InvalidArgument(f"images is after or both, not {images!r}")
        until = _moment("until", _get(given, "until"))
        return ReadOptions(
            changes=changes,
            since=LATEST if _get(given, "since") == LATEST else _moment("since", _get(given, "since")),
            until=newest if until is None else until,
            images=images,
            net=net,
            limit=None if limit is None else _whole("limit", limit, 0),
            max_rows=None if most is None else _whole("maxRowsPerTrigger", most, 1),
            path=_path(given),
            storage=_storage(given),
            columns=_columns(_get(given, "columns")),
            where=_filter(_get(given, "where")),
            at=newest if at is None else at,
            target_rows=DEFAULT_TARGET_ROWS if target is None else _whole("targetRowsPerTask", target),
        )

    def names(self, schema: Schema, wanted: Any = None) -> list[str]:
        """The columns to read, in order; ``wanted`` is a Spark schema that the user gave."""
        if wanted is not None:
            return projected(schema, wanted)
        return [one.name for one in picked(schema, self.columns)[1]]

    def filter(self, schema: Schema) -> Any:
        """``where`` with its values in the columns' types."""
        if not self.where or isinstance(self.where, str):
            return self.where or None
        groups = self.where if isinstance(self.where[0][0], list) else [self.where]
        return [[_term(term, schema) for term in group] for group in groups]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write."""

    path: str
    operation: str
    txn: Txn | None
    on_duplicate: str
    sequence_by: str | None
    ignore_null: bool
    lock_timeout_s: float | None
    storage: Mapping[str, Any] | None = field(default=None, repr=False)

    @staticmethod
    def parse(given: Mapping[str, str], *, overwrite: bool = False) -> WriteOptions:
        _check_names(given, WRITE_OPTIONS, READ_OPTIONS, "write", "read")
        app_id, version = _get(given, "txnAppId"), _get(given, "txnVersion")
        if (app_id is None) != (version is None):
            raise InvalidArgument("txnAppId and txnVersion go together")
        txn = None if app_id is None or version is None else (app_id, _whole("txnVersion", version))
        operation = _get(given, "operation") or "upsert"
        on_duplicate = _get(given, "onDuplicate") or "error"
        sequence_by, ignore_null = _get(given, "sequenceBy"), _truth(given, "ignoreNull")
        timeout = _get(given, "lockTimeoutS")
        return WriteOptions(
            path=_path(given),
            storage=_storage(given),
            operation=operation,
            txn=check_job(
                operation,
                txn,
                on_duplicate,
                sequence_by,
                ignore_null,
                overwrite=overwrite,
                on_repeat=_get(given, "onRepeat") or CHECK,
            ),
            on_duplicate=on_duplicate,
            sequence_by=sequence_by,
            ignore_null=ignore_null,
            lock_timeout_s=None if timeout is None else _seconds("lockTimeoutS", timeout),
        )


def _check_names(
    given: Mapping[str, str], mine: tuple[str, ...], others: tuple[str, ...], verb: str, other_verb: str
) -> None:
    known = {name.lower(): name for name in mine}
    for name in given:
        if name.lower() in known or name.lower().startswith(STORAGE):
            continue
        other = {n.lower(): n for n in others}.get(name.lower())
        if other is not None:
            raise InvalidArgument(f"{other} is an option of {other_verb}, not of {verb}")
        close = difflib.get_close_matches(name.lower(), known, 1)
        hint = f"; did you mean {known[close[0]]}?" if close else "."
        raise InvalidArgument(f"no option {name!r} to {verb} a table{hint} There are {', '.join(mine)}")


def _get(given: Mapping[str, str], name: str) -> str | None:
    for key, value in given.items():
        if key.lower() == name.lower():
            return value
    return None


def _path(given: Mapping[str, str]) -> str:
    path = _get(given, "path")
    if not path:
        raise InvalidArgument(
            'no path: say where the table is with .load("/tables/t"), .save("/tables/t") or '
            '.option("path", "/tables/t")'
        )
    return table_path(re.sub("^file:/+", "/", path))


def _storage(given: Mapping[str, str]) -> dict[str, Any] | None:
    """What the client of a store is given; None where no option speaks of it."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if not name.lower().startswith(STORAGE):
            continue
        *folders, key = name[len(STORAGE) :].lower().split(".")
        if not key or folders not in ([], ["client_options"]):
            raise InvalidArgument(
                f"no option {name!r}: those of a store's client are storage.<name>, and "
                "storage.client_options.<name>"
            )
        (found.setdefault("client_options", {}) if folders else found)[key] = value
    return found or None


def _columns(text: str | None) -> list[str] | None:
    """``a,b`` or, for names with commas, a JSON list."""
    if text is None:
        return None
    if text.lstrip().startswith("["):
        names = _json("columns", text)
        if not all(isinstance(name, str) for name in names):
            raise InvalidArgument(f"columns is a list of names, not {text!r}")
    else:
        names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InvalidArgument("columns names no column; leave the option out to read all")
    return list(names)


def _whole(name: str, text: str, least: int | None = None) -> int:
    try:
        number = int(text)
    except ValueError:
        raise InvalidArgument(f"{name} is a whole number, not {text!r}") from None
    if least is not None and number < least:
        raise InvalidArgument(f"{name} is a whole number from {least}, not {text!r}")
    return number


def _truth(given: Mapping[str, str], name: str) -> bool:
    text = (_get(given, name) or "false").lower()
    if text not in ("true", "false"):
        raise InvalidArgument(f"{name} is true or false, not {text!r}")
    return text == "true"


def _moment(name: str, text: str | None) -> int | datetime | None:
    """The timestamp of a write, as a whole number, or a time with its zone."""
    if text is None:
        return None
    return int(text) if text.isdigit() else _instant(name, text)


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidArgument(f"{name} is a number of seconds from 0, not {text!r}")
    return seconds


def _instant(name: str, text: str) -> datetime:
    """ISO text with its zone, or seconds since 1970, as Spark casts a number to a timestamp."""
    at: datetime | None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None and _NUMBER.fullmatch(text):
        micros = int(Decimal(text).scaleb(6).to_integral_value(ROUND_FLOOR))
        try:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        except OverflowError:
            raise InvalidArgument(
                f"{name} as a number is in seconds since 1970, and {text} of them are no time; the timestamp "
                "of a write goes into the option snapshot"
            ) from None
    if at is None or at.tzinfo is None:
        raise InvalidArgument(
            f"{name} is a time with its zone, such as 2026-01-31T12:00:00Z (a data source is not told the "
            f"session's zone), or a number of seconds since 1970, not {text!r}"
        )
    return at


# ---- where ----


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError as exc:
        raise InvalidArgument(f"{name} is no JSON: {exc}") from None


def _filter(text: str | None) -> Any:
    """What begins as a list is JSON, anything else SQL."""
    return text if text is not None and not text.lstrip().startswith("[") else _json_filter(text)


def _json_filter(text: str | None) -> Any:
    """Checked for its shape: [[name, op, value], ...], or a list of such lists, of which one must hold."""
    if text is None:
        return None
    found = _json("where", text)
    groups = found
    if isinstance(found, list) and found and all(_is_term(term) for term in found):
        groups = [found]
    good = (
        isinstance(groups, list)
        and groups
        and all(
            isinstance(group, list) and group and all(_is_term(term) for term in group) for group in groups
        )
    )
    if not good:
        raise InvalidArgument(
            'where is a JSON list of [column, operator, value], all of which must hold: [["k", ">", 5], '
            '["s", "in", ["a", "b"]]]; or a list of such lists, of which one must hold. '
            f"Not {text!r}"
        )
    return groups


def _is_term(term: Any) -> bool:
    return isinstance(term, list) and len(term) == 3 and isinstance(term[0], str) and isinstance(term[1], str)


def _term(term: list[Any], schema: Schema) -> tuple[str, str, Any]:
    name, operator, value = term
    type_ = schema.column(name).type
    if isinstance(value, list):
        return name, operator, [_value(type_, name, item) for item in value]
    return name, operator, _value(type_, name, value)


def _value(type_: ColumnType, name: str, value: Any) -> Any:
    """What JSON has no form for is written as text: ISO dates and times, decimals, binary as hex."""
    if isinstance(value, Decimal) and type_.kind != TYPE_DECIMAL:
        value = float(value)
    if not isinstance(value, str):
        return value
    convert: Callable[[str], Any] | None = None
    if type_.is_timestamp:
        convert = datetime.fromisoformat
    elif type_.is_date:
        convert = date.fromisoformat
    elif type_.kind == TYPE_DECIMAL:
        convert = Decimal
    elif type_.name == "binary":
        convert = bytes.fromhex
    if convert is None:
        return value
    try:
        return convert(value)
    except (ValueError, ArithmeticError):
        raise InvalidArgument(f"where: {value!r} is no value of column {name!r}, which is {type_}") from None
