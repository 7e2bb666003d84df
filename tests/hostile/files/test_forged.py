"""Forged files: every number in them may lie although its checksum is good."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kudu_core.cfile.pages import container, container_writer, page
from tests.support.hostile.damage import Damage, Subject, kind_of, subject
from tests.support.hostile.forge import FORGERS, forged, survive

pytestmark = pytest.mark.timeout(7200)  # --long takes its time

CASES, LONG_CASES = 16, 2500


@pytest.fixture(scope="module", params=["closed", "killed"])
def table(request: pytest.FixtureRequest, seed: int) -> Subject:
    return subject(request.param, seed)


def try_all(table: Subject, cases: Iterator[list[Damage]], seed: int) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for number, damages in enumerate(cases):
        for mode in ("r", "rw"):
            try:
                outcomes[survive(table, damages, mode, seed)] += 1
            except (UnicodeDecodeError, pa.ArrowInvalid) as error:
                # Text that is not UTF-8: Arrow and Python refuse it, in the caller's own conversion.
                assert "UTF" in str(error) or "utf" in str(error), error
            except BaseException as error:
                error.add_note(f"{table.name} table, mode {mode}, case {number}: {damages[0]}; --seed={seed}")
                raise
    return outcomes


@pytest.mark.parametrize("kind", FORGERS)
def test_forged_contents(table: Subject, kind: str, seed: int, long: bool) -> None:
    rng = random.Random(seed * 1_000 + list(FORGERS).index(kind))
    paths = [path for path in table.files if kind_of(path) == kind]
    cases = (forged(table, rng.choice(paths), rng) for _ in range(LONG_CASES if long else CASES))
    outcomes = try_all(table, cases, seed)
    assert outcomes["Corruption"], "nothing was found at all"


@pytest.mark.parametrize("kind", ["rows", "delta"])
def test_forged_pages(kind: str, seed: int, long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksums of data files are zero, in what is written and in what is expected: every decoder,
    and what lays changes over rows, is on its own."""

    def nothing(data: Any, value: int = 0) -> int:
        return 0

    monkeypatch.setattr(container, "crc32c", nothing)
    monkeypatch.setattr(container_writer, "crc32c", nothing)
    monkeypatch.setattr(page, "crc32c", nothing)
    table = subject("closed", seed)
    rng = random.Random(seed * 1_000 + len(kind))
    paths = [path for path in table.files if kind_of(path) == kind]

    def cases() -> Iterator[list[Damage]]:
        for _ in range(LONG_CASES if long else 2 * CASES):
            path = rng.choice(paths)
            data = bytearray(table.files[path])
            at = rng.randrange(container.HEADER.size, len(data) - container.TRAILER.size)
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << rng.randrange(8)))
            yield [Damage(path, f"byte {at} is {data[at]}", bytes(data))]

    assert try_all(table, cases(), seed)["Corruption"]
