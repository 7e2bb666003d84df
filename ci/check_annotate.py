"""Fail on a line inside a nogil body that Cython's annotation scores: it touches Python.

Reads ``<kernel>.pyx`` for where the bodies are and ``<kernel>.html`` for the scores.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

HEADER = re.compile(r"^(\s*)(cdef|cpdef)\b.*|^(\s*)def\b")
SCORE = re.compile(r'<pre class="cython line score-(\d+)"[^>]*>\+?<span[^>]*>0*(\d+)</span>')


def nogil_lines(source: list[str]) -> Iterator[int]:
    """Numbers, from 1, of the lines in the bodies of functions that are declared nogil."""
    at = 0
    while at < len(source):
        line = source[at]
        start = HEADER.match(line)
        at += 1
        if not start or "(" not in line:
            continue
        indent = len(line) - len(line.lstrip())
        header = line
        while not header.split("#")[0].rstrip().endswith(":") and at < len(source):
            if header.count("(") == header.count(")"):
                break  # a declaration, not a function
            header += source[at]
            at += 1
        if not re.search(r"\bnogil\s*:\s*(#.*)?$", header.rstrip()):
            continue
        while at < len(source):
            body = source[at]
            outside = len(body) - len(body.lstrip()) <= indent and not body.lstrip().startswith(")")
            if body.strip() and outside:
                break
            at += 1
            yield at


def main(sources: Path, pages: Path) -> int:
    bad = 0
    for page in sorted(pages.rglob("*.html")):
        kernel = sources / page.relative_to(pages).with_suffix(".pyx")
        if not kernel.exists():
            continue
        source = kernel.read_text().splitlines(keepends=True)
        inside = set(nogil_lines(source))
        for score, number in SCORE.findall(page.read_text()):
            if int(score) > 0 and int(number) in inside:
                print(f"{kernel}:{number}: score {score}: {source[int(number) - 1].strip()}")
                bad += 1
    print(f"{bad} scored lines in nogil bodies")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
