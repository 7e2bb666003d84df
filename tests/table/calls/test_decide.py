"""Plain calls, decided without asking each cell where it comes from, are decided as all others."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.rules import decide as rules
from kudu_core.common.run.pool import Pool
from kudu_core.table.calls import prepared as preparing
from kudu_core.table.calls.conform import OPERATIONS, conform_calls
from kudu_core.table.calls.decide import decide, decide_net, net_changes
from kudu_core.table.calls.prepared import Prepared
from tests.support.inside import engine_of
from tests.support.tables import Make

SCHEMA = [
    kc.Column("k", pa.string(), nullable=False),
    kc.Column("n", pa.int32(), nullable=False),
    kc.Column("a", pa.int64()),
    kc.Column("d", pa.float64(), nullable=False, default=2.5),
    kc.Column("s", pa.string()),
]


def rows_of(rng: random.Random, operation: str, count: int) -> list[dict[str, Any]]:
    names = ["k", "n"]
    if not operation.startswith("delete"):
        names += sorted(rng.sample(["a", "d", "s"], rng.choice((1, 2, 3))))
    cells = {
        "k": lambda: rng.choice("abcdefgh") * rng.randrange(4),
        "n": lambda: rng.randrange(-40, 40),
        "a": lambda: rng.choice((None, rng.randrange(100))),
        "d": lambda: rng.random(),
        "s": lambda: rng.choice((None, "", "x", "long" * 9)),
    }
    return [{name: cells[name]() for name in names} for _ in range(count)]


@pytest.mark.parametrize("sorted_rows", [1, 1 << 16])
def test_plain_calls_come_to_what_the_rules_say(
    make: Make, seed: int, sorted_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with keys looked through in their order, as those of large calls are."""
    monkeypatch.setattr(preparing, "SORTED_ROWS", sorted_rows)
    engine = engine_of(make(SCHEMA, ["k", "n"]))
    plain = 0
    with Pool(2) as pool:
        for run in range(400):
            rng = random.Random(f"{seed}-{run}")
            operation = rng.choice(OPERATIONS)
            [call] = conform_calls(engine.schema, operation, rows_of(rng, operation, rng.choice((1, 3, 9))))
            prepared = Prepared(engine.schema, engine.partitions, [call], rng.choice((None, pool)))
            keys = list(prepared.batch.keys)
            assert len(set(keys)) == prepared.groups == len(keys)
            assert prepared.batch.hashes.tolist() == prepared.batch.keys.hashes().tolist()
            assert list(prepared.batch.in_order[0]) == sorted(keys)
            share = rng.choice((0.0, 0.5, 1.0))
            live = np.array([rng.random() < share for _ in range(prepared.groups)])
            decided, net = decide_net(prepared, live)
            plain += not len(decided.kind)
            wanted = decide(prepared, live)
            expected = net_changes(prepared, wanted)
            for name in ("inserted", "updated", "deleted", "ignored"):
                assert getattr(decided, name) == getattr(wanted, name), name
            assert decided.codes.tolist() == [0 if c == rules.OK else c for c in wanted.codes.tolist()]
            for found, right in (
                ((net.inserts, net.insert_groups), (expected.inserts, expected.insert_groups)),
                *zip(net.updates, expected.updates, strict=True),
                ((net.deletes, net.delete_groups), (expected.deletes, expected.delete_groups)),
            ):
                assert found[1].tolist() == right[1].tolist()
                assert list(found[0].columns) == list(right[0].columns)
                for column_id, column in found[0].columns.items():
                    type_ = engine.schema.by_id[column_id].type
                    assert column.to_arrow(type_).equals(right[0].columns[column_id].to_arrow(type_))
    assert plain > 60
