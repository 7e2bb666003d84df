"""What a record says of the table as a whole, and what the table is after it (protocol A1, G7).

That is an ALTER, or an INGEST that overwrites the table or gives it other partitions.  Pure functions on
``TableState``: the walks that append them, replay and readers of the log all follow the same ones.
docs/format-log.md, "Record payloads" and "ALTER payload", has the members.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kudu_core.common.format.members import BROKEN, integer, parsed
from kudu_core.common.format.names import MAX_TABLET
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Corruption, InvalidArgument
from kudu_core.options import Options
from kudu_core.table.stored.table_state import (
    TableState,
    TabletEntry,
    check_new_tablets,
    check_tablets,
    replace,
    schemas_kept,
)
from kudu_core.tablet.store import records
from kudu_core.wal import RECORD_KIND_ALTER, RECORD_KIND_INGEST, Record


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change of a table: what there is after it."""

    schema: Schema | None
    """None: the columns stay."""
    partitions: PartitionSchema | None
    """None: the ranges stay."""
    created: tuple[tuple[int, int], ...] = ()
    """New tablets: (id, ordinal of the partition)."""
    dropped: tuple[int, ...] = ()
    """Ids of tablets that end: their range was dropped, or the table overwritten."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Those that change, by name."""
    horizon: int = 0
    """No time below it is read any more."""

    @staticmethod
    def of(
        state: TableState,
        schema: Schema,
        partitions: PartitionSchema,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> Alteration:
        """What brings a table to this schema and these partitions; ``options``: those that change."""
        new_schema = None if schema is state.schema else schema
        if partitions is state.partitions:
            return Alteration(new_schema, None, options=options)
        known = {tablet.partition for tablet in state.tablets}
        live = {p.ordinal for p in partitions.partitions if not p.dropped}
        new = sorted(live - known)
        check_new_tablets(state, len(new))
        return Alteration(
            new_schema,
            partitions,
            tuple((state.next_tablet + i, ordinal) for i, ordinal in enumerate(new)),
            tuple(t.id for t in state.tablets if t.dropped_ts is None and t.partition not in live),
            options,
        )

    @staticmethod
    def overwriting(state: TableState) -> Alteration:
        """A new tablet in the place of each one that there is."""
        old = [tablet for tablet in state.tablets if tablet.dropped_ts is None]
        check_new_tablets(state, len(old))
        return Alteration(
            None,
            None,
            tuple((state.next_tablet + i, tablet.partition) for i, tablet in enumerate(old)),
            tuple(tablet.id for tablet in old),
        )

    @staticmethod
    def repartitioning(state: TableState, partitions: PartitionSchema) -> Alteration:
        """Tablets of other partitions, which follow those of the state, in the place of all tablets."""
        old = tuple(tablet.id for tablet in state.tablets if tablet.dropped_ts is None)
        check_new_tablets(state, len(partitions.partitions))
        created = tuple((state.next_tablet + i, p.ordinal) for i, p in enumerate(partitions.partitions))
        return Alteration(None, partitions, created, old)

    @property
    def tablets(self) -> dict[str, Any]:
        """The members of its record that say which tablets come and go."""
        return {"created": [list(entry) for entry in self.created], "dropped": list(self.dropped)}

    @property
    def in_ingest(self) -> dict[str, Any]:
        """The members of an INGEST that overwrites the table, or gives it other partitions."""
        if self.partitions is None:
            return self.tablets
        return {**self.tablets, "partitions": self.partitions.to_json()}

    def to_bytes(self) -> bytes:
        value = {
            "schema": None if self.schema is None else self.schema.to_json(),
            "partitions": None if self.partitions is None else self.partitions.to_json(),
            **self.tablets,
            **({"options": dict(self.options)} if self.options else {}),
            **({"horizon": self.horizon} if self.horizon else {}),
        }
        return json.dumps(value, separators=(",", ":")).encode()

    @staticmethod
    def parse(data: bytes | memoryview, before: Schema) -> Alteration:
        """Raises one of ``stored.BROKEN`` or ``InvalidArgument`` for what ``to_bytes`` never writes."""
        value: Mapping[str, Any] = parsed(data)
        schema = None if value["schema"] is None else Schema.from_json(value["schema"])
        if schema is not None and (schema.version != before.version + 1 or schema.key_ids != before.key_ids):
            raise ValueError(f"schema version {schema.version} follows {before.version}")
        stored = value["partitions"]
        partitions = None if stored is None else PartitionSchema.from_json(stored, schema or before)
        options = dict(value.get("options", {}))
        Options().overridden(options)
        horizon = integer(value.get("horizon", 0))
        return Alteration(schema, partitions, *_tablets(value), options, horizon)

    @staticmethod
    def of_record(record: Record, before: Schema) -> Alteration:
        """What an ALTER, or an INGEST that overwrites or partitions anew, says.  Raises as ``parse``."""
        if record.kind == RECORD_KIND_ALTER:
            return Alteration.parse(record.payload, before)
        value = _extra(record)
        stored = value.get("partitions")
        partitions = None if stored is None else PartitionSchema.from_json(stored, before)
        return Alteration(None, partitions, *_tablets(value))

    def after(self, state: TableState, ts: int) -> TableState:
        """The table once the record of ``ts`` is applied; ``ValueError``: it ends what is not there."""
        dropped = set(self.dropped)
        if not dropped <= {t.id for t in state.tablets if t.dropped_ts is None}:
            raise ValueError(f"tablets {self.dropped} are not all there")
        tablets = [replace(t, dropped_ts=ts) if t.id in dropped else t for t in state.tablets]
        tablets += [TabletEntry(i, ordinal, ts) for i, ordinal in self.created]
        schemas = state.schemas if self.schema is None else schemas_kept((*state.schemas, self.schema))
        return replace(
            state,
            options=state.options.overridden(self.options) if self.options else state.options,
            schemas=schemas,
            partitions=self.partitions or state.partitions,
            tablets=tuple(tablets),
            next_tablet=max([state.next_tablet, *(i + 1 for i, _ in self.created)]),
            applied_ts=max(ts, state.applied_ts),
            horizon=max(self.horizon, state.horizon),
        )


def _tablets(value: Mapping[str, Any]) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    created = tuple((integer(i, 1, MAX_TABLET), integer(ordinal)) for i, ordinal in value["created"])
    return created, tuple(integer(i, 1, MAX_TABLET) for i in value["dropped"])


def _extra(record: Record) -> dict[str, Any]:
    return records.decode_extra(record.payload, f"log record {record.lsn}", 0)


def alters(record: Record) -> bool:
    """Whether a record is one that ``followed`` follows.  ``Corruption``: its payload is broken."""
    return record.kind == RECORD_KIND_ALTER or (
        record.kind == RECORD_KIND_INGEST and "created" in _extra(record)
    )


def followed(state: TableState, altering: Iterable[Record]) -> TableState:
    """A table as the records of its log say that alter it and are newer than its TABLE.

    Raises
    ------
    Corruption
        A record says what no table can be.
    """
    for record in altering:
        if record.ts <= state.applied_ts:
            continue
        try:
            state = Alteration.of_record(record, state.schema).after(state, record.ts)
            check_tablets(state)
        except (*BROKEN, InvalidArgument) as exc:
            what = "ALTER" if record.kind == RECORD_KIND_ALTER else "INGEST"
            raise Corruption(f"log record {record.lsn}", 0, f"{what}: {exc!r:.200}") from exc
    return state


__all__ = ["Alteration", "alters", "followed"]
