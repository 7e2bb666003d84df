"""The stores on which the contract is tested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.objects.places import KINDS, Place, opened


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty place in a store of each kind, with a client of it."""
    with opened(request.param) as place:
        yield place
