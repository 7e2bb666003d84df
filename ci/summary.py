"""The end of ``ci/test.sh``: the time and the outcome of each room, and one line in pytest's form over all.

Reads a folder with ``rooms`` (lines of name, exit status, seconds) and a JUnit file for each room of tests;
second argument: the seconds of all together, which is less than the sum of those that ran beside each other.
A room that ended without one, or in another way than by passing or failing its tests, counts as an error;
so does a failed check (lint, types).
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

PASSED, TESTS_FAILED = 0, 1  # pytest's exit statuses for a run that was complete
SCRIPTS = {
    "checks": ("lint and types", "lint or types failed"),
    "mutations": ("mutations of the critical rooms are noticed", "too many mutations survived"),
}
"""Rooms that are no tests of pytest: what is said of them when they pass, and when they do not."""


def counted(report: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for suite in ET.parse(report).getroot().iter("testsuite"):
        failed, errors, skipped = (int(suite.get(k, 0)) for k in ("failures", "errors", "skipped"))
        counts["failed"] += failed
        counts["errors"] += errors
        counts["skipped"] += skipped
        counts["passed"] += int(suite.get("tests", 0)) - failed - errors - skipped
    return counts


def in_words(counts: Counter[str]) -> str:
    kinds = ("failed", "passed", "skipped", "errors")
    shown = ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind]) or "no tests ran"
    return shown.replace("errors", "error") if counts["errors"] == 1 else shown


def main(results: Path, seconds: int) -> int:
    total: Counter[str] = Counter()
    bad = False
    for line in (results / "rooms").read_text().splitlines():
        room, status, took = line.split()
        report = results / f"{room}.xml"
        counts = counted(report) if report.exists() else Counter()
        note = ""
        if room in SCRIPTS:
            note = SCRIPTS[room][status != "0"]
        elif int(status) not in (PASSED, TESTS_FAILED):
            note = f"ended with status {status}"
        if int(status) != 0:
            bad = True
            counts["errors"] += not counts["failed"] and not counts["errors"]
        total += counts
        outcome = note if room in SCRIPTS else f"{in_words(counts)} {note}"
        print(f"{room:10} {int(took):5} s   {outcome}".rstrip())
    print(f"{' ' + in_words(total) + f' in {seconds}.00s (0:{seconds // 60:02}:{seconds % 60:02}) ':=^100}")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
