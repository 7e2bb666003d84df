"""The collector of cycles is held back for much work, and comes back however that ends."""

from __future__ import annotations

import gc

import pytest

from kudu_core.common.run.cycles import MANY, cycles_left


def test_it_is_held_back_for_many_entries_alone() -> None:
    assert gc.isenabled()
    with cycles_left(MANY - 1):
        assert gc.isenabled()
    with cycles_left(MANY):
        assert not gc.isenabled()
        with cycles_left(MANY):
            pass
        assert not gc.isenabled(), "the outer block goes on"
    assert gc.isenabled()


def test_it_comes_back_after_an_error_and_stays_off_where_it_was_off() -> None:
    with pytest.raises(ZeroDivisionError), cycles_left(MANY):
        1 / 0  # noqa: B018
    assert gc.isenabled()
    gc.disable()
    try:
        with cycles_left(MANY):
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
