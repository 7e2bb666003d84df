"""The long mixed load of ``bench/soak.py``, for seconds: that it runs, and that it would complain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import soak

LEVEL = soak.Figures(
    rss=300 << 20,
    open_files=30,
    threads=10,
    log_bytes=30 << 20,
    log_segments=2,
    disk_bytes=90 << 20,
    files=50,
    pinned=2,
)


def test_level_figures_pass() -> None:
    assert soak.judge([LEVEL] * 40) == []


@pytest.mark.parametrize("name", list(soak.ALLOWED))
def test_what_grows_is_told(name: str) -> None:
    start = getattr(LEVEL, name)
    grown = [replace(LEVEL, **{name: start + start * step // 4 + step}) for step in range(40)]
    complaints = soak.judge(grown)
    assert len(complaints) == 1 and complaints[0].startswith(f"{name} grew"), complaints


def test_too_short_a_run_is_told() -> None:
    assert soak.judge([LEVEL] * 5) == ["too short to judge: fewer than eight looks"]


def test_it_runs(tmp_path: Path) -> None:
    wrong = soak.run(tmp_path / "t", 0.1, 2, 2, 0.5, 0, deletes=True)
    assert [w for w in wrong if "grew" not in w] == []
