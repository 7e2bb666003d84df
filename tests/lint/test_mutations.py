"""The mutation runner (``ci/mutate.py``) knows rooms that exist, and makes mutations that are Python."""

from __future__ import annotations

import ast
import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.lint.package.sources import parsed

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    sys.path.insert(0, str(ROOT / "ci"))  # as for a script there: mutation_finder lies beside it
    spec = importlib.util.spec_from_file_location("mutate", ROOT / "ci" / "mutate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "ci"))
    return module


def test_each_room_has_mutations_of_each_file(runner: ModuleType) -> None:
    found = list(runner.mutations())
    wanted = {(name, path) for name, room in runner.ROOMS.items() for path in room.files}
    assert {(m.room, m.path) for m in found} == wanted
    kinds = {"drop", "compare", "condition", "operand", "bound", "one", "order"}
    assert {m.kind for m in found} == kinds


def test_a_mutation_is_another_program(runner: ModuleType, seed: int) -> None:
    found = list(runner.mutations())
    for mutation in random.Random(seed).sample(found, 60):
        source = (ROOT / mutation.path).read_text()
        assert ast.dump(parsed(runner.mutated(source, mutation))) != ast.dump(parsed(source)), mutation


def test_what_is_known_to_be_equivalent_is_there_and_explained(runner: ModuleType) -> None:
    keys = {mutation.key for mutation in runner.mutations()}
    for key, reason in runner.explained().items():
        assert key in keys, f"no such mutation any more: {key}"
        assert len(reason) > 20, f"without a reason: {key}"


def test_what_no_named_test_notices_is_shown_to_a_whole_folder(runner: ModuleType) -> None:
    assert runner.mirror("kudu_core/table/jobs/commit.py") == "tests/table/jobs"
    assert runner.mirror("kudu_core/cfile/pages/container.py") == "tests/cfile"
    for path in {path for room in runner.ROOMS.values() for path in room.files}:
        assert list((ROOT / runner.mirror(path)).rglob("test_*.py")), path
        assert runner.mirror(path) != "tests", f"{path}: all tests are none that are near"
