"""Keys that are asked for, as columns and encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kudu_core.common.rows.arrow_in import batches
from kudu_core.common.rows.conform import conform
from kudu_core.common.rows.keys import EncodedKeys, decode_keys, encode_key, encode_keys
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.types.foreign import names_of
from kudu_core.errors import InvalidArgument

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema


def _encoded(schema: Schema, key: Any, row: int) -> bytes:
    try:
        return encode_key(schema, key)
    except InvalidArgument as error:
        raise type(error)(f"row {row}: {error}") from None


def key_block(schema: Schema, keys: Any) -> tuple[RowBlock, EncodedKeys]:
    """Keys as columns and encoded: from anything with columns, or a list of scalars, tuples or dicts."""
    if isinstance(keys, list | tuple) and (not keys or not isinstance(keys[0], pa.RecordBatch)):
        encoder = schema.row_codec.keys
        plain = encoder.encode_many(keys)
        if plain is not None:
            encoded = EncodedKeys(*plain)
        else:
            fast = (encoder.encode(key) for key in keys)
            whole = (
                _encoded(schema, key, row) if f is None else f
                for row, (f, key) in enumerate(zip(fast, keys, strict=True))
            )
            encoded = EncodedKeys.from_list(whole)
        return decode_keys(schema, encoded), encoded
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        if len(schema.key_ids) != 1:
            raise InvalidArgument(
                f"keys of this table have the columns {', '.join(schema.key_names)}; one array is not enough"
            )
        keys = {schema.key_names[0]: keys}
    blocks = []
    rows = 0
    for batch in batches(keys, schema):
        conformed = conform(schema, batch, allow_extra=names_of(batch.schema), first_row=rows)
        rows += batch.num_rows
        if conformed.status is not None:
            row = rows - batch.num_rows + int(np.flatnonzero(conformed.status)[0])
            raise InvalidArgument(f"key {row} has a NULL; key columns take none")
        blocks.append(conformed.block.select(schema.key_ids))
    if not blocks:
        none = EncodedKeys.from_list([])
        return decode_keys(schema, none), none
    block = RowBlock.concat(blocks)
    return block, encode_keys(schema, block)


__all__ = ["key_block"]
