"""What cannot be written whole leaves nothing behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from kudu_core.cfile import REDO
from kudu_core.cfile.files.delta_writer import write_delta_file
from kudu_core.fs.posix import PosixFileSystem
from tests.support.cases.cfile import make_case
from tests.support.fs.faulty import FaultyFileSystem, Rule


@pytest.mark.parametrize("call", ["append", "sync"])
@pytest.mark.parametrize("kind", ["rows", "delta"])
def test_a_file_that_cannot_be_written_whole_is_removed(tmp_path: Path, kind: str, call: str) -> None:
    """Nobody knows the name of a file that has no footer: it would only take room on a full disk."""
    fs = FaultyFileSystem(PosixFileSystem(), [Rule({call}, error=errno.ENOSPC)])
    path = str(tmp_path / "a")
    with pytest.raises(OSError, match="No space left"):
        if kind == "rows":
            make_case(np.random.default_rng(8), 3000).write(fs, path)
        else:
            rowids, codes = np.arange(40, dtype=np.uint32), np.full(40, 2, np.uint8)
            write_delta_file(fs, path, REDO, rowids, np.arange(40, dtype=np.uint64), codes, {})
    assert fs.fired == 1 and os.listdir(tmp_path) == []
