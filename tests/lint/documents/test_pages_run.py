"""Each page of the documents whose Python nobody else runs: block after block, as a reader would type it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELSEWHERE = {
    # A page with a test of its own, which knows what it needs.
    "administration", "alter", "engines", "history", "merge", "spark", "sql", "types",
    # Programs are not what these show.
    "objects",
}  # fmt: skip
WITH_BLOCKS = [page for page in DOCS.rglob("*.md") if BLOCK.search(page.read_text())]
PAGES = sorted(page for page in WITH_BLOCKS if page.stem not in ELSEWHERE)


def test_pages_with_tests_of_their_own_are_there() -> None:
    assert {page.stem for page in DOCS.glob("*.md")} >= ELSEWHERE
    assert len(PAGES) >= 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of their own; lines keep their numbers, so that a traceback points into the page."""
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    program = ["\n"] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        for number, line in enumerate(block[1].splitlines(keepends=True)):
            program[first + number] = line
    exec(compile("".join(program), str(page), "exec"), {"__name__": page.stem})
