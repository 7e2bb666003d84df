"""TABLE of an open table: replaced whole, known again after an interrupt, and fenced."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.errors import Fenced
from kudu_core.table.opened.table_file import TableFile
from kudu_core.table.stored.table_state import TableState, read_state
from tests.support.fs.faulty import FaultyFileSystem, Rule
from tests.support.fs.memory import MemoryFileSystem

PATH = "/d/t"
TABLE = f"{PATH}/TABLE"


class Case:
    """TABLE of a table with one tablet, as its writer has it."""

    def __init__(self) -> None:
        memory = MemoryFileSystem()
        memory.mkdir("/d")
        memory.sync_dir("/")
        kc.create_table(PATH, [kc.Column("k", "int64")], "k", _fs=memory).close()
        self.fs = FaultyFileSystem(memory)
        self.proven: dict[int, int] = {}
        self.poisoned: list[BaseException] = []
        self.before = read_state(self.fs, TABLE)
        self.file = TableFile(
            self.fs,
            PATH,
            self.before,
            proven=lambda: self.proven,
            poison=self.poisoned.append,
            check_poisoned=self.check_poisoned,
        )

    def check_poisoned(self) -> None:
        if self.poisoned:
            raise kc.Poisoned(str(self.poisoned[0]))

    def installed(self) -> Case:
        self.file.install(replace(self.before, epoch=self.before.epoch + 1))
        return self

    def stored(self) -> TableState:
        return read_state(self.fs, TABLE)

    def clean_end(self, number: int) -> Callable[[TableState], TableState]:
        return lambda state: replace(state, clean_end=number)


def test_what_is_installed_is_stored_and_known() -> None:
    case = Case().installed()
    assert case.stored() == case.file.state
    assert case.file.state.epoch == case.before.epoch + 1
    case.file.change(case.clean_end(17))
    assert case.stored() == case.file.state and case.file.state.clean_end == 17
    case.file.fence()
    assert not case.poisoned


def test_a_reader_is_never_fenced_and_sees_that_an_epoch_has_begun() -> None:
    case = Case()
    reader = TableFile(case.fs, PATH, case.before)
    assert reader.is_unwritten()
    case.installed()
    reader.fence()
    assert not reader.is_unwritten()
    case.fs.unlink(TABLE)
    assert not reader.is_unwritten()


@pytest.mark.parametrize("gone", [False, True])
def test_another_writer_fences(gone: bool) -> None:
    case = Case().installed()
    if gone:
        case.fs.unlink(TABLE)
    else:
        case.fs.replace_file(TABLE, case.fs.read_bytes(TABLE, 1 << 20))  # another file, of the same bytes
    with pytest.raises(Fenced):
        case.file.fence()
    with pytest.raises(Fenced):
        case.file.change(case.clean_end(17))
    assert case.file.state.clean_end == 0 and not case.poisoned


def test_a_change_that_fails_poisons_and_is_not_made() -> None:
    case = Case().installed()
    case.fs.rules = [Rule(ops={"rename"}, error=errno.EIO)]
    with pytest.raises(OSError, match=TABLE):
        case.file.change(case.clean_end(17))
    assert [type(error) for error in case.poisoned] == [OSError]
    assert case.file.state.clean_end == 0 and case.stored() == case.file.state


def test_an_install_that_fails_poisons_nothing() -> None:
    case = Case()
    case.fs.rules = [Rule(ops={"rename"}, error=errno.EIO)]
    with pytest.raises(OSError, match=TABLE):
        case.installed()
    assert not case.poisoned and case.file.state is case.before


@pytest.mark.parametrize("replaced", [False, True])
def test_a_replacement_that_was_interrupted_is_settled_by_its_bytes(
    replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case().installed()
    usual = case.fs.replace_file

    def interrupted(path: str, data: Any) -> None:
        if replaced:
            usual(path, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(case.fs, "replace_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        case.file.change(case.clean_end(17))
    monkeypatch.undo()
    assert case.file.state.clean_end == 0, "nobody knows yet"
    case.file.fence()
    assert case.file.state.clean_end == case.stored().clean_end == (17 if replaced else 0)
    case.file.change(lambda state: replace(state, horizon=5))
    assert case.stored() == case.file.state
    assert (case.stored().clean_end, case.stored().horizon) == (17 if replaced else 0, 5)


def test_edits_that_are_known_to_be_on_disk_are_said_and_never_taken_back() -> None:
    case = Case().installed()
    [tablet] = case.before.tablets
    for proven, said in ((5, 5), (3, 5), (9, 9)):
        case.proven = {tablet.id: proven}
        case.file.change(lambda state: state)
        assert case.stored().edits == {tablet.id: said}


def test_w8_a_failed_fsync_of_what_an_interrupt_left_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is this writer's, its name may not be durable, and no second fsync makes it so."""
    case = Case().installed()
    usual = case.fs.replace_file

    def interrupted(path: str, data: Any) -> None:
        usual(path, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(case.fs, "replace_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        case.file.change(case.clean_end(17))
    monkeypatch.undo()
    synced = case.fs.counts["sync_dir"]
    case.fs.rules = [Rule(ops={"sync_dir"}, error=errno.EIO)]
    with pytest.raises(OSError, match=PATH):
        case.file.fence()
    assert [type(error) for error in case.poisoned] == [OSError]
    case.fs.rules = []
    case.file.fence()  # nobody else has replaced it
    assert case.fs.counts["sync_dir"] == synced + 1, "and it is not tried again"
    with pytest.raises(kc.Poisoned):
        case.file.change(case.clean_end(18))
    assert case.stored().clean_end == 17


def test_w8_a_table_that_is_poisoned_changes_nothing() -> None:
    case = Case().installed()
    case.poisoned.append(OSError("an fsync of the log"))
    with pytest.raises(kc.Poisoned):
        case.file.change(case.clean_end(17))
    assert case.stored().clean_end == 0
