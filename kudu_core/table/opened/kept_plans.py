"""Plans of reads that are asked for again and again, as long as the table has the columns that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema

P = TypeVar("P")

_MOST = 64
"""When one more comes, those that are there go: whoever asks so many different things plans each anew."""


class KeptPlans(Generic[P]):
    """Plans of one schema by what was asked for.

    Threads may make a plan twice; either is right.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._plans: dict[tuple[Any, ...], P] = {}

    def get(self, asked: tuple[Any, ...]) -> P | None:
        return self._plans.get(asked)

    def put(self, asked: tuple[Any, ...], plan: P) -> None:
        plans = self._plans if len(self._plans) < _MOST else {}
        plans[asked] = plan
        self._plans = plans

    def __len__(self) -> int:
        return len(self._plans)


__all__ = ["KeptPlans"]
