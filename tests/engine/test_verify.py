"""``table.verify``: sound files are read to the last byte, and damage that nobody has met yet is found."""

from __future__ import annotations

from pathlib import Path

import pytest

import kudu_core as kc
from tests.engine.conftest import Make


def filled(make: Make) -> kc.Table:
    table = make(history_retention_s=None)
    table.insert([{"k": k, "a": k, "s": f"w{k % 7}"} for k in range(3000)])
    table.flush()
    for step in range(2):
        table.update([{"k": k, "a": step} for k in range(500)])
        table.delete([2000 + step])
        table.flush()
    table.compact(full=True)
    table.update([{"k": 1, "a": 5}])
    return table


def test_a_sound_table(make: Make, path: Path) -> None:
    table = filled(make)
    with kc.open_table(path) as reader:
        found = [table.verify(), reader.verify()]
    stored = sum(p.stat().st_size for p in path.rglob("*.rows")) + sum(
        p.stat().st_size for p in path.rglob("*.delta")
    )
    [rowset] = table._engine.tablets[0].view.rowsets
    assert found[0].files == len(rowset.meta.files) > 3
    assert found[0].bytes == found[1].bytes <= stored
    assert found[0].records >= 1


@pytest.mark.parametrize("suffix", ["rows", "delta"])
def test_damage_is_found(make: Make, path: Path, suffix: str) -> None:
    table = filled(make)
    named = {file.name for meta in table._engine.tablets[0].rowset_metas for file in meta.files}
    table.close()
    for file in sorted(p for p in path.rglob(f"*.{suffix}") if p.name in named):
        sound = file.read_bytes()
        broken = bytearray(sound)
        broken[len(broken) // 2] ^= 4
        file.write_bytes(bytes(broken))
        # Replay may meet it first: the log changes a row of the file.
        with pytest.raises(kc.Corruption, match=file.name), kc.open_table(path) as reader:
            reader.verify()
        file.write_bytes(sound)
    with kc.open_table(path) as reader:
        reader.verify()
