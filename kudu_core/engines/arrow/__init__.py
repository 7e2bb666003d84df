"""Tables for engines that query Arrow datasets.  Importing this makes ``Table.to_dataset`` work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kudu_core.table.read import arrow_out

if TYPE_CHECKING:
    from kudu_core.table.opened.handle import Handle


def _dataset(handle: Handle, at: Any) -> Any:
    from kudu_core.engines.arrow.dataset import TableDataset

    return TableDataset.of(handle, at)


arrow_out.make_dataset = _dataset
