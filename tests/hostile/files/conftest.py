"""What the tests of hostile files share."""

from __future__ import annotations

import pytest

from tests.support.hostile.lost import World


@pytest.fixture
def world() -> World:
    return World()
