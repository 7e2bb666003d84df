"""``TABLE``: what is true of the table as a whole, one small file that is replaced whole.

A header and JSON; docs/format-table.md, "TABLE", has the bytes and the members.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kudu_core.common.format import members
from kudu_core.common.format.envelope import HEADER, Envelope
from kudu_core.common.format.members import integer
from kudu_core.common.format.names import MAX_TABLET, tablet_folder
from kudu_core.common.idempotence.writers import AppliedWrite, stored_app_id
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Corruption, InvalidArgument, NotSupported
from kudu_core.options import Options
from kudu_core.table.stored.indexes import INDEXES_FLAG, IndexEntry, indexes_from_json, indexes_to_json
from kudu_core.table.stored.store_place import StorePlace
from kudu_core.table.stored.tags import TAGS_FLAG, tags_from_json, tags_to_json

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

CELLS_FLAG = 2
"""Some column lies in older files as another type: who does not know that would read it wrongly."""
TTL_FLAG = 4
"""In the header of a TABLE with a schema that has ``ttl``: a library that knows none would show what has
expired, and forget it."""
ANEW_FLAG = 8
"""In the header of a TABLE that got other partitions: who knows of none would not find its rows."""
FLAGS = TAGS_FLAG | CELLS_FLAG | TTL_FLAG | ANEW_FLAG | INDEXES_FLAG
ENVELOPE = Envelope(magic=b"KUDUTBL\x01", version=1, other="not a TABLE file", flags=FLAGS)
IN_STORE = Envelope(magic=ENVELOPE.magic, version=2, other="not a TABLE object", flags=ENVELOPE.flags)
"""Of a table in an object store."""
MAX_BYTES = 512 << 20
"""The parts have limits of their own, which together come to less."""
_REMEMBERED_BYTES = 4 << 20
"""What TABLE says is remembered where it is no longer."""
MAX_EPOCH = 1 << 31
SCHEMAS_KEPT = 64
"""Versions of the schema that TABLE remembers, for distributed writes that began with one of them."""
OLD_SCHEMAS_BYTES = 16 << 20
"""What all but the newest of them take at most as JSON: of a wide table fewer are remembered."""
MAX_TABLETS = 1 << 20
"""Those that are there and those that have ended and are not purged."""


@dataclass(frozen=True, slots=True)
class TabletEntry:
    """A tablet as TABLE lists it."""

    id: int
    partition: int
    """Its ordinal in the partition schema."""
    created_ts: int
    dropped_ts: int | None = None


@dataclass(frozen=True, slots=True)
class TableState:
    """The contents of TABLE.  Replaced, never changed."""

    uuid: bytes
    epoch: int
    options: Options
    schemas: tuple[Schema, ...]
    """The newest versions, oldest first."""
    partitions: PartitionSchema
    tablets: tuple[TabletEntry, ...]
    tokens: dict[str, AppliedWrite] = field(default_factory=dict)
    applied_ts: int = 0
    """Last record whose schema, partition and token effects are in here."""
    clean_end: int = 0
    """Last lsn after a clean close, 0 while the table is open or was not closed."""
    next_tablet: int = 0
    """The id of the next tablet: above every id ever given."""
    horizon: int = 0
    """History at or below it may be gone: that of tablets that were purged."""
    edits: dict[int, int] = field(default_factory=dict)
    """By tablet: an edit of its MANIFEST that was on disk when this was written.  A MANIFEST that ends before
    it is damaged, or is not there."""
    place: StorePlace | None = None
    """Of a table in an object store, which has no ``edits``."""
    tags: Mapping[str, int] = field(default_factory=dict)
    """By name, timestamps whose history every writer keeps."""
    indexes: Mapping[str, IndexEntry] = field(default_factory=dict)
    """By name, columns by which rows are to be found."""
    next_index: int = 1
    """The id of the next index: above every id ever given."""

    def __post_init__(self) -> None:
        if not self.next_tablet:
            object.__setattr__(self, "next_tablet", 1 + max((t.id for t in self.tablets), default=0))

    @property
    def schema(self) -> Schema:
        return self.schemas[-1]

    def to_bytes(self) -> bytes:
        """``NotSupported`` for more than a reader takes, which its parts never come to."""
        envelope = ENVELOPE if self.place is None else IN_STORE
        body = json.dumps(
            {
                "uuid": self.uuid.hex(),
                "epoch": self.epoch,
                "options": self.options.to_json(),
                "schemas": [s.to_json() for s in self.schemas],
                "partitions": self.partitions.to_json(),
                "tablets": [[t.id, t.partition, t.created_ts, t.dropped_ts] for t in self.tablets],
                "tokens": {
                    base64.b64encode(app.encode()).decode(): token.to_json()
                    for app, token in self.tokens.items()
                },
                "applied_ts": self.applied_ts,
                "clean_end": self.clean_end,
                "next_tablet": self.next_tablet,
                "horizon": self.horizon,
                **(
                    {"edits": [[t.id, self.edits[t.id]] for t in self.tablets if t.id in self.edits]}
                    if self.place is None
                    else self.place.to_json()
                ),
                **tags_to_json(self.tags),
                **indexes_to_json(self.indexes, self.next_index),
            },
            separators=(",", ":"),
        ).encode()
        if HEADER.size + len(body) > MAX_BYTES:
            raise NotSupported(
                f"TABLE would have {HEADER.size + len(body):,} bytes; it has at most {MAX_BYTES:,}"
            )
        flags = (TAGS_FLAG if self.tags else 0) | (CELLS_FLAG if self.schema.cells else 0)
        if any(schema.ttl is not None for schema in self.schemas):
            flags |= TTL_FLAG
        if self.partitions.first:
            flags |= ANEW_FLAG
        if self.indexes:
            flags |= INDEXES_FLAG
        return envelope.around(body, flags)


def schemas_kept(schemas: Sequence[Schema]) -> tuple[Schema, ...]:
    """Of all versions, oldest first, those that TABLE remembers: the newest, and some before it."""
    kept, left = [schemas[-1]], OLD_SCHEMAS_BYTES
    for schema in reversed(schemas[:-1]):
        left -= schema.json_bytes
        if left < 0 or len(kept) == SCHEMAS_KEPT:
            break
        kept.append(schema)
    return tuple(reversed(kept))


def check_new_tablets(state: TableState, count: int) -> None:
    """``NotSupported`` where a table cannot have so many more tablets."""
    listed = len(state.tablets) + count
    if listed > MAX_TABLETS:
        raise NotSupported(
            f"{count:,} new tablets beside {len(state.tablets):,}, of which some have ended: at most "
            f"{MAX_TABLETS:,} are listed; gc() takes out those that ended before history_retention_s"
        )
    if state.next_tablet + count > MAX_TABLET:
        raise NotSupported(
            f"{count:,} new tablets from id {state.next_tablet:,} on: ids end below {MAX_TABLET:,}; "
            "make another table"
        )


def read_state(fs: FileSystem, path: str) -> TableState:
    """Read and check TABLE; ``FileNotFoundError`` when there is none."""
    return parse_state(fs.read_bytes(path, MAX_BYTES), path)


def parse_state(data: bytes, path: str, *, in_store: bool = False) -> TableState:
    """What TABLE says, of a table in a folder or in an object store; ``Corruption``, ``NotSupported``."""
    body = bytes((IN_STORE if in_store else ENVELOPE).body(path, data))
    try:
        if len(body) > _REMEMBERED_BYTES:
            return _state_of(body, in_store)
        state = _remembered(body, in_store)
        return replace(state, tokens=dict(state.tokens), edits=dict(state.edits))
    except (*members.BROKEN, InvalidArgument) as exc:
        raise Corruption(path, HEADER.size, f"broken contents: {exc!r:.200}") from exc


def _state_of(body: bytes, in_store: bool = False) -> TableState:
    """What TABLE says; the errors of ``members.BROKEN`` and ``InvalidArgument`` for what it never does."""
    value = members.parsed(body)
    schemas = tuple(map(Schema.from_json, value["schemas"]))
    indexes, next_index = indexes_from_json(value)
    state = TableState(
        uuid=_uuid(value["uuid"]),
        epoch=integer(value["epoch"], 1, MAX_EPOCH),
        options=Options.from_json(value["options"]),
        schemas=schemas,
        partitions=PartitionSchema.from_json(value["partitions"], schemas[-1]),
        tablets=tuple(
            TabletEntry(integer(i, 1, MAX_TABLET), integer(p), integer(c), members.integer_or_none(d))
            for i, p, c, d in value["tablets"]
        ),
        tokens={
            stored_app_id(base64.b64decode(app, validate=True).decode()): AppliedWrite.from_json(token)
            for app, token in value["tokens"].items()
        },
        applied_ts=integer(value["applied_ts"]),
        clean_end=integer(value["clean_end"]),
        next_tablet=integer(value.get("next_tablet", 0), 0, MAX_TABLET + 1),
        horizon=integer(value.get("horizon", 0)),
        edits={
            integer(i, 1, MAX_TABLET): integer(number) for i, number in ([] if in_store else value["edits"])
        },
        place=StorePlace.from_json(value) if in_store else None,
        tags=tags_from_json(value.get("tags", [])),
        indexes=indexes,
        next_index=next_index,
    )
    check_tablets(state)
    return state


_remembered = lru_cache(4)(_state_of)
"""One open reads TABLE up to four times, and of a wide table most of its time would go into the columns."""


def _uuid(value: Any) -> bytes:
    uuid = bytes.fromhex(value)
    if len(uuid) != 16:
        raise ValueError(f"a table's uuid has 16 bytes, not {len(uuid)}")
    return uuid


def check_tablets(state: TableState) -> None:
    """Every live partition has one live tablet.  Beside it there may be those that have ended, by an
    overwrite, the drop of their range or other partitions, and are not purged yet: of one partition, one
    after the other."""
    if len(state.tablets) > MAX_TABLETS:
        raise ValueError(f"{len(state.tablets)} tablets; at most {MAX_TABLETS} are listed")
    ids = {tablet.id for tablet in state.tablets}
    schemes = (state.partitions, *state.partitions.former)
    known = {p.ordinal for some in schemes for p in some.partitions}
    live = {p.ordinal for p in state.partitions.partitions if not p.dropped}
    lives: dict[int, list[TabletEntry]] = {}
    for tablet in sorted(state.tablets, key=lambda t: t.id):
        lives.setdefault(tablet.partition, []).append(tablet)
    here = {ordinal for ordinal, tablets in lives.items() if tablets[-1].dropped_ts is None}
    in_turn = all(
        a.dropped_ts is not None and a.dropped_ts <= b.created_ts
        for tablets in lives.values()
        for a, b in pairwise(tablets)
    )
    if len(ids) != len(state.tablets) or here != live or not lives.keys() <= known or not in_turn:
        raise ValueError(f"{len(state.tablets)} tablets and {len(live)} partitions do not fit together")
    if any(tablet.id >= state.next_tablet for tablet in state.tablets):
        raise ValueError(f"a tablet's id is not below next_tablet, {state.next_tablet}")
    if any(id_ not in state.schema.by_id for one in state.indexes.values() for id_ in one.column_ids):
        raise ValueError("an index is of a column that is not there")
    versions = [schema.version for schema in state.schemas]
    if versions != sorted(set(versions)):
        raise ValueError(f"schema versions {versions}")


def tablet_directory(root: str, tablet_id: int) -> str:
    return f"{root}/tablets/{tablet_folder(tablet_id)}"


__all__ = [
    "SCHEMAS_KEPT",
    "AppliedWrite",
    "TableState",
    "TabletEntry",
    "check_new_tablets",
    "check_tablets",
    "parse_state",
    "read_state",
    "replace",
    "schemas_kept",
    "tablet_directory",
]
