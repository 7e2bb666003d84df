"""The lease and children made by fork, which share the open file that is locked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kudu_core.errors import Locked
from kudu_core.fs import PosixFileSystem
from kudu_core.fs import lease as lease_module
from kudu_core.fs.lease import PosixLease

FS = PosixFileSystem()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/LOCK"


def living_child() -> Callable[[], None]:
    """Fork a child that does nothing, and has done what children do first; what is returned ends it."""
    ready, begun = os.pipe()
    stay, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.write(begun, b"x")
        os.read(stay, 1)
        os._exit(0)
    os.read(ready, 1)

    def end() -> None:
        os.close(go)
        os.waitpid(pid, 0)
        for descriptor in (ready, begun, stay):
            os.close(descriptor)

    return end


STEPS = ("opened", "_lock", "acquire_within")


@pytest.mark.parametrize("step", STEPS)
def test_a_dead_owner_leaves_no_lock_to_a_child(
    path: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the fork was: where the file is open and the lease does not know of it yet, where it is
    locked, and when it is held."""
    ends: list[Callable[[], None]] = []
    usual = getattr(lease_module, step)

    def forking(*args: Any, **keywords: Any) -> Any:
        answer = usual(*args, **keywords)
        if not ends:
            ends.append(living_child())  # in it, nothing of this thread goes on
        return answer

    monkeypatch.setattr(lease_module, step, forking)
    mine = FS.lease(path)
    mine.try_acquire()
    try:
        assert len(ends) == 1 and mine.held
        holder = FS.lease(path).holder()
        assert holder is not None and holder.pid == os.getpid()
        with pytest.raises(Locked):
            FS.lease(path).try_acquire()
        mine.abandon()  # as the owner's death does: nothing is unlocked, its open file goes
        assert FS.lease(path).holder() is None
    finally:
        for end in ends:
            end()


def test_a_living_child_does_not_keep_a_released_lease(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that has done nothing about it."""
    mine = FS.lease(path)
    mine.try_acquire()
    with monkeypatch.context() as patch:
        patch.setattr(PosixLease, "abandon", lambda lease: None)  # the child keeps the descriptor
        end = living_child()
    try:
        mine.release()
        other = FS.lease(path)
        other.try_acquire()
        other.release()
    finally:
        end()
