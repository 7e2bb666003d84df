"""Locks and claims: taken and recorded in one step, given back however the block ends, or when they go."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kudu_core._ext.base.holding import Claim, HeldLocks
from kudu_core._ext.files.descriptors import Descriptor, folder_beneath


class Lock:
    """Says what was done with it; refuses where it is told to."""

    def __init__(self, said: list[str], name: str, refuses: bool = False) -> None:
        self.said, self.name, self.refuses = said, name, refuses

    def acquire(self) -> None:
        if self.refuses:
            raise KeyboardInterrupt
        self.said.append(f"+{self.name}")

    def release(self) -> None:
        self.said.append(f"-{self.name}")


def test_all_are_held_in_order_and_let_go_in_reverse() -> None:
    said: list[str] = []
    with HeldLocks([Lock(said, name) for name in "abc"]):
        assert said == ["+a", "+b", "+c"]
    assert said == ["+a", "+b", "+c", "-c", "-b", "-a"]


def test_an_exception_of_the_block_lets_go() -> None:
    locks = [threading.Lock(), threading.RLock()]
    with pytest.raises(ZeroDivisionError), HeldLocks(locks):
        1 / 0  # noqa: B018
    assert all(lock.acquire(False) for lock in locks)


def test_an_interrupt_while_waiting_lets_go_of_those_before() -> None:
    said: list[str] = []
    locks = [Lock(said, "a"), Lock(said, "b"), Lock(said, "c", True)]
    with pytest.raises(KeyboardInterrupt), HeldLocks(locks):
        raise AssertionError("not entered")
    assert said == ["+a", "+b", "-b", "-a"]


def test_no_locks() -> None:
    with HeldLocks([]):
        pass


def test_an_interrupt_between_enter_and_the_block_lets_go() -> None:
    """As CPython 3.14 may have it: the object goes without its ``__exit__``."""
    lock = threading.Lock()

    def entered() -> None:
        held: Any = HeldLocks([lock])
        held.__enter__()
        assert lock.locked()

    entered()
    assert not lock.locked()


def test_a_reentrant_lock_is_held_as_often_as_taken() -> None:
    lock = threading.RLock()
    with HeldLocks([lock, lock]):
        assert lock._is_owned()  # type: ignore[attr-defined]
    assert not lock._is_owned()  # type: ignore[attr-defined]


def test_claims_last_as_long_as_their_block() -> None:
    claimed = {1}
    with Claim(claimed, 2) as claim:
        claim.take([3, 4])
        assert claimed == {1, 2, 3, 4} and claim.held
    assert claimed == {1} and not claim.held
    claim.release()
    assert claimed == {1}


def test_claims_go_with_their_object() -> None:
    claimed: set[int] = set()
    claim = Claim(claimed, 1)
    assert claimed == {1}
    del claim
    assert not claimed


def test_what_another_has_claimed_stays_the_others() -> None:
    claimed: set[int] = set()
    first = Claim(claimed, 1)
    second = Claim(claimed, 1, 2)
    assert claimed == {1, 2}
    second.release()
    assert claimed == {1}
    first.release()
    assert not claimed


def test_the_last_claim_says_that_it_was_the_last() -> None:
    claimed: set[int] = set()
    said: list[int] = []
    claims = [Claim(claimed, n, emptied=lambda n=n: said.append(n)) for n in range(3)]  # type: ignore[misc]
    for claim in claims:
        claim.release()
        claim.release()
    assert said == [2]


def test_an_entry_that_cannot_be_claimed_leaves_those_before_to_the_claim() -> None:
    claimed: set[Any] = set()
    claim = Claim(claimed)
    with pytest.raises(TypeError):
        claim.take([1, [], 2])
    assert claimed == {1}
    claim.release()
    assert not claimed


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_folder_is_reached_name_by_name(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c\u00e9").mkdir(parents=True)
    before = descriptors()
    for names in ([], ["b"], ["b", "c\u00e9"]):
        folder = Descriptor(folder_beneath, str(tmp_path / "a"), names)
        assert os.fstat(folder.fd).st_ino == tmp_path.joinpath("a", *names).stat().st_ino
        assert not os.get_inheritable(folder.fd)
        del folder
    assert descriptors() == before


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("kind", ["link", "file", "missing"])
def test_the_folder_that_cannot_be_opened_is_named(tmp_path: Path, at: int, kind: str) -> None:
    names = ["a", "b", "c", "d"]
    (tmp_path / "out" / "b" / "c" / "d").mkdir(parents=True)
    refused = tmp_path.joinpath(*names[: at + 1])
    refused.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        refused.symlink_to(tmp_path / "out")
    elif kind == "file":
        refused.write_bytes(b"")
    before = descriptors()
    with pytest.raises(OSError) as met:
        folder_beneath(str(tmp_path / "a"), names[1:])
    assert met.value.filename == str(refused)
    assert met.value.errno in ((errno.ENOENT,) if kind == "missing" else (errno.ENOTDIR, errno.ELOOP))
    assert descriptors() == before


def test_a_name_with_a_zero_byte_is_refused(tmp_path: Path) -> None:
    before = descriptors()
    with pytest.raises(ValueError, match="zero byte"):
        folder_beneath(str(tmp_path), ["a\0b"])
    assert descriptors() == before
