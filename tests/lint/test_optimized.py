"""Rules whose breach would lose data are checks that raise: ``python -O`` does not take them away."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import numpy as np
import pyarrow as pa
import kudu_core as kc
from kudu_core.errors import InternalError
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of
from kudu_core.rowset.memory.changelog import Change, ChangeLog
from kudu_core.cfile.files.delta_codes import REDO_DELETE
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.tablet.store.edits import Edit
from kudu_core.wal import Log, read_log

assert False, "this runs without assertions"

fs = MemoryFileSystem()
schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
table = kc.create_table("/t", schema, "k", options={"maintenance": "manual"}, _fs=fs)
table.insert({"k": [1, 2], "v": [1, 2]})
table.flush()
engine = engine_of(table)
tablet = engine.tablets[0]
rowset = tablet.view.rowsets[0]
one = Change(REDO_DELETE, np.array([0]), {})


def edit_ahead_of_the_log():
    tablet.install(tablet.view, Edit(mark=engine.log.durable_ts + 1))


def checkpoint_ahead_of_the_log():
    engine.log.checkpoint(engine.log.committed_ts + 1, {})


def change_that_files_hold():
    rowset.with_active().change(rowset.meta.durable, one)


def changes_out_of_order():
    log = ChangeLog()
    log.append(7, one)
    log.append(6, one)


def change_of_a_frozen_store():
    log = ChangeLog()
    log.frozen_at = 5
    log.append(7, one)


def an_epoch_twice():
    tail = read_log(fs, "/t/wal", engine.uuid)
    Log.resume(fs, "/t/wal", engine.uuid, engine.table_file.state.epoch, tail, clock=engine.clock)


def deltas_that_are_not_the_first():
    active = rowset.with_active()
    active.with_compacted([None], None)


number = tablet.state.number
for broken in (
    edit_ahead_of_the_log,
    checkpoint_ahead_of_the_log,
    change_that_files_hold,
    changes_out_of_order,
    change_of_a_frozen_store,
    an_epoch_twice,
    deltas_that_are_not_the_first,
):
    try:
        broken()
    except InternalError as error:
        print(broken.__name__, "|", error)
    else:
        raise SystemExit(f"{broken.__name__} was let through")
if tablet.state.number != number:
    raise SystemExit("an edit was written")
table.insert({"k": [3], "v": [3]})
table.close()
print("sound")
"""


def test_rules_that_guard_data_hold_without_assertions() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout
    lines = done.stdout.splitlines()
    assert len(lines) == 8 and lines[-1] == "sound"
