"""How much memory a process may use, in trees that look like a machine's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kudu_core.fs.machine import memory_bytes

HAS = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
FIRST, SECOND = "sys/fs/cgroup/memory", "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("group", "limits", "expected"),
    [
        ("", {}, HAS),
        ("0::/", {}, HAS),
        ("0::/a/b", {f"{SECOND}/a/b/memory.max": "5000"}, 5000),
        ("0::/a/b", {f"{SECOND}/a/b/memory.max": "max", f"{SECOND}/a/memory.max": "6000"}, 6000),
        ("0::/a/b", {f"{SECOND}/a/b/memory.max": "7000", f"{SECOND}/a/memory.max": "6000"}, 6000),
        ("0::/a/b", {f"{SECOND}/memory.max": "8000"}, 8000),  # of a container, whose group is the mount
        ("0::/../b", {f"{SECOND}/memory.max": "8000"}, 8000),
        ("4:cpu,memory:/a", {f"{FIRST}/a/memory.limit_in_bytes": "9000"}, 9000),
        ("4:memory:/a", {f"{FIRST}/memory.limit_in_bytes": "9000"}, 9000),
        ("4:memory:/a", {f"{FIRST}/a/memory.limit_in_bytes": "9223372036854771712"}, HAS),
        ("4:memory:/a\n0::/c", {f"{FIRST}/a/memory.limit_in_bytes": "9", f"{SECOND}/c/memory.max": "4"}, 4),
        ("4:cpu:/a", {f"{FIRST}/a/memory.limit_in_bytes": "9000"}, HAS),
        ("0::/a", {f"{SECOND}/a/memory.max": "many"}, HAS),
        ("0::/a", {f"{SECOND}/a/memory.max": "0"}, HAS),
        ("nonsense", {f"{SECOND}/memory.max": "9000"}, HAS),
    ],
)
def test_the_least_limit_counts(tmp_path: Path, group: str, limits: dict[str, str], expected: int) -> None:
    for name, text in {"proc/self/cgroup": group, **limits}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert memory_bytes(tmp_path) == expected


def test_here() -> None:
    assert 64 << 20 < memory_bytes() <= HAS
    assert memory_bytes(Path("/nowhere")) == HAS
