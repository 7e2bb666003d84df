"""What an ALTER record says, and what a table is after it (PROTOCOL A1).

Pure functions on ``TableState``: the walk that alters, replay and readers of the log all follow the
same ones.  docs/format.md, "ALTER payload", has the members.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kudu_core.common.partitions import PartitionSchema
from kudu_core.common.schema import Schema
from kudu_core.common.stored import BROKEN, integer, parsed
from kudu_core.errors import Corruption, InvalidArgument
from kudu_core.table.state import SCHEMAS_KEPT, TableState, TabletEntry, check_tablets, replace
from kudu_core.wal import Record


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
    """Ids of tablets whose range was dropped."""

    @staticmethod
    def of(state: TableState, schema: Schema, partitions: PartitionSchema) -> Alteration:
        """What brings a table to this schema and these partitions."""
        if partitions is state.partitions:
            return Alteration(schema, None)
        known = {tablet.partition for tablet in state.tablets}
        live = {p.ordinal for p in partitions.partitions if not p.dropped}
        new = sorted(live - known)
        return Alteration(
            None if schema is state.schema else schema,
            partitions,
            tuple((state.next_tablet + i, ordinal) for i, ordinal in enumerate(new)),
            tuple(t.id for t in state.tablets if t.dropped_ts is None and t.partition not in live),
        )

    def to_bytes(self) -> bytes:
        value = {
            "schema": None if self.schema is None else self.schema.to_json(),
            "partitions": None if self.partitions is None else self.partitions.to_json(),
            "created": [list(entry) for entry in self.created],
            "dropped": list(self.dropped),
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
        return Alteration(
            schema,
            None if stored is None else PartitionSchema.from_json(stored, schema or before),
            tuple((integer(i, 1, 1 << 32), integer(ordinal)) for i, ordinal in value["created"]),
            tuple(integer(i, 1, 1 << 32) for i in value["dropped"]),
        )

    def after(self, state: TableState, ts: int) -> TableState:
        """The table once the record of ``ts`` is applied."""
        dropped = set(self.dropped)
        tablets = [replace(t, dropped_ts=ts) if t.id in dropped else t for t in state.tablets]
        tablets += [TabletEntry(i, ordinal, ts) for i, ordinal in self.created]
        schemas = state.schemas if self.schema is None else (*state.schemas, self.schema)[-SCHEMAS_KEPT:]
        return replace(
            state,
            schemas=schemas,
            partitions=self.partitions or state.partitions,
            tablets=tuple(tablets),
            next_tablet=max([state.next_tablet, *(i + 1 for i, _ in self.created)]),
            applied_ts=max(ts, state.applied_ts),
        )


def followed(state: TableState, records: Iterable[Record]) -> TableState:
    """A table as the ALTER records of its log say that are newer than its TABLE.

    Raises
    ------
    Corruption
        A record says what no table can be.
    """
    for record in records:
        if record.ts <= state.applied_ts:
            continue
        try:
            state = Alteration.parse(record.payload, state.schema).after(state, record.ts)
            check_tablets(state)
        except (*BROKEN, InvalidArgument) as exc:
            raise Corruption(f"log record {record.lsn}", 0, f"ALTER: {exc!r:.200}") from exc
    return state


__all__ = ["Alteration", "followed"]
