"""Every decoder answers or refuses stored bytes that lie, and allocates no more than they declare.

Checksums are good.  ``--long`` tries 200,000 mutations in all; ``ci/sanitize.sh`` runs this under sanitizers.
A mutation that breaks something is written to ``build/fuzz``, and its number is reported.
"""

from __future__ import annotations

import os
import random
import resource
from pathlib import Path
from typing import Any

import pytest

from kudu_core.cfile.columns import statistics
from kudu_core.cfile.files import rows_writer
from kudu_core.cfile.pages import container, container_writer, page
from kudu_core.common.format import envelope
from kudu_core.tablet.store import manifest_format
from kudu_core.wal import format as wal_format
from tests.support.hostile.decoders import REFUSALS, TARGETS
from tests.support.hostile.mutate import mutated

pytestmark = pytest.mark.timeout(7200)  # --long takes its time

MUTATIONS, LONG_MUTATIONS = 3_000, 200_000
"""Of all decoders together."""
GROWTH_KIB = 96 << 10


# ---- manifest, TABLE, log ----


@pytest.fixture(scope="module", autouse=True)
def forged() -> Any:
    """All checksums are zero, in what is written and in what is expected."""

    def nothing(data: Any, value: int = 0) -> int:
        return 0

    with pytest.MonkeyPatch.context() as patch:
        files = (container, container_writer, page, rows_writer, statistics)
        for module in (*files, manifest_format, envelope, wal_format):
            patch.setattr(module, "crc32c", nothing)
        yield


@pytest.mark.parametrize("name", TARGETS)
def test_decoders_answer_or_refuse(name: str, seed: int, long: bool) -> None:
    target = TARGETS[name]
    samples = target.samples()
    assert samples
    for sample in samples:
        target.read(sample)  # what is sound is read
    whole = int(os.environ.get("KUDU_CORE_FUZZ", LONG_MUTATIONS if long else MUTATIONS))
    count = -(-whole * target.share // sum(t.share for t in TARGETS.values()))
    rng = random.Random(f"{seed}-{name}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for number in range(count):
        data = mutated(rng.choice(samples), samples, rng)
        try:
            target.read(data)
        except REFUSALS:
            refused += 1
        except BaseException as error:
            folder = Path("build/fuzz")
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name.replace(' ', '-')}-{seed}-{number}.bin"
            path.write_bytes(data)
            error.add_note(f"mutation {number} of {name}, kept as {path}; run again with --seed={seed}")
            raise
    assert refused, "nothing was refused: the mutations miss"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    # A sanitizer keeps what was freed, to see who still uses it.
    if "asan" not in os.environ.get("LD_PRELOAD", ""):
        assert grown < GROWTH_KIB, f"{grown} KiB more for artefacts of {max(map(len, samples))} bytes"
    print(f"{name}: {count} mutations, {refused} refused; seed {seed}")
