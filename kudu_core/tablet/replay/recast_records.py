"""Records of the log as rows of the types of today: a record names the version of the schema that its cells
are of."""

from __future__ import annotations

from dataclasses import replace

from kudu_core.common.rows.recast.recast_columns import recast_block
from kudu_core.common.schema.older_types import types_at
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Corruption
from kudu_core.tablet.store import records
from kudu_core.wal import Record


def decoded(record: Record, schema: Schema, where: str) -> records.Payload:
    """What a WRITE or INGEST says.  ``schema``: of today; ``where``: what ``Corruption`` names."""
    payload = records.decode(memoryview(record.payload), where, 0)
    older = types_at(schema.columns, record.schema_version)
    if not older:
        return payload
    for section in payload.sections:
        for column_id, type_ in older.items():
            column = section.block.columns.get(column_id)
            if column is not None and column.width != type_.width:
                reason = f"cells of {column.width} bytes in column {column_id}, then {type_}"
                raise Corruption(where, 0, reason)
    types = schema.cell_types
    sections = [
        replace(section, block=recast_block(section.block, older, types)) for section in payload.sections
    ]
    return replace(payload, sections=sections)


__all__ = ["decoded"]
