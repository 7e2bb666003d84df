"""Random operations on random tables in an object store whose requests meet fates: the engine and a dict of
rows give equal answers (``tests/stories/test_differential.py`` has the same in a folder).

``--long`` runs 10,000 cases; ``--seed`` says where they begin, so that they may be run in pieces.
"""

from __future__ import annotations

import dataclasses

import pytest

from kudu_core.table.lifecycle.in_store import store_home
from kudu_core.wal.objects import object_log
from tests.support.differential import Case, Store, code_of, failure_of, random_case

SHORT = (10, 40)
LONG = (10_000, 60)
LASTING = (None, 86_400)
ODDS = (0.0, 0.02, 0.1)
LOOKS = 0.25
"""Whatever is wrong with what is stored stays wrong, and the end has a look at everything; what is read of
one state in how many ways is the same in a folder.  Three quarters of a case's time were looks."""
LISTINGS = ("sorted", "unordered", "stale")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case_seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--seed")
        cases, steps = LONG if metafunc.config.getoption("--long") else SHORT
        metafunc.parametrize("case_seed", range(first, first + cases))
        metafunc.parametrize("steps", [steps], ids=str)


def case_of(seed: int, steps: int) -> Case:
    """What is acknowledged must be there, and deleted files go at once in two cases of three.  Not where
    history is short too: a reader whose file has gone looks for its snapshot in a newer state (protocol
    B14)."""
    case = random_case(seed, steps)
    grace_s = (0.0, 0.0, 60.0)[seed % 3]
    if case.options["maintenance"] == "background" and case.options["history_retention_s"] not in LASTING:
        grace_s = 60.0
    options = {**case.options, "durability": "sync", "file_grace_s": grace_s}
    return dataclasses.replace(case, options=options)


@pytest.mark.timeout(600)
def test_engine_and_model_agree(case_seed: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if case_seed % 4:  # checkpoints and full buffers, which a short history would not come to
        monkeypatch.setattr(object_log, "CHECKPOINT_OBJECTS", 3)
        monkeypatch.setattr(object_log, "BUFFER_BYTES", 4096)
        monkeypatch.setattr(store_home, "CLOSE_OBJECTS", 2)
    case = case_of(case_seed, steps)
    odds, listing = ODDS[case_seed % 3], LISTINGS[case_seed // 3 % 3]
    failure = failure_of(case, Store(case_seed, odds, listing), LOOKS)
    if failure is not None:
        pytest.fail(f"seed {case_seed}, odds {odds}: {failure}\n\n{code_of(case)}\n", pytrace=False)
