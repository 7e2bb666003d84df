"""Mutations: change one line of a critical room, run the tests nearest to it, list what nobody noticed.

First come the tests that ``ci/mutation_rooms.py`` names, then the folder of tests that mirrors the mutated
file's package, then those that use the whole table: only what all of them let pass has survived.

The kinds of mutation are in ``ci/mutation_finder.py``.  A mutation that changes nothing that
anybody could see stands in ``ci/equivalent_mutations.txt`` with the reason, and is not drawn again.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from mutation_finder import Finder, Mutation, mutated
from mutation_rooms import ROOMS, WHOLE_TABLE

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "ci" / "equivalent_mutations.txt"
TIMEOUT_S = 1800
"""Of one run.  A test that hangs ends by its own limit, and has noticed; this is for what that cannot end."""
MAY_SURVIVE = 2


def mutations(root: Path = ROOT) -> Iterator[Mutation]:
    """Every mutation of every room; ``SystemExit`` for a file or test that is not there."""
    for name, room in ROOMS.items():
        for missing in (p for p in (*room.files, *room.tests, *WHOLE_TABLE) if not (root / p).exists()):
            raise SystemExit(f"room {name}: there is no {missing}; the map is in ci/mutation_rooms.py")
        for path in room.files:
            source = (root / path).read_text()
            finder = Finder(name, path, source)
            finder.visit(ast.parse(source))
            yield from finder.found


def mirror(path: str) -> str:
    """The folder of tests that mirrors a file's package, or else its room."""
    folder = Path("tests", *Path(path).parts[1:-1])
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    return folder.as_posix()


def explained() -> dict[str, str]:
    """Of each known equivalent mutation its reason."""
    reasons: dict[str, str] = {}
    for entry in EQUIVALENT.read_text().split("\n\n"):
        lines = [line for line in entry.splitlines() if line and not line.startswith("#")]
        if lines:
            reasons[lines[0]] = " ".join(line.strip() for line in lines[1:])
    return reasons


def sample(found: list[Mutation], count: int, seed: int) -> list[Mutation]:
    """As many of each room as of every other one, as far as there are."""
    rng = random.Random(seed)
    by_room: dict[str, list[Mutation]] = {}
    for mutation in found:
        by_room.setdefault(mutation.room, []).append(mutation)
    for mutations_of_room in by_room.values():
        rng.shuffle(mutations_of_room)
    rooms, chosen = list(by_room), []
    rng.shuffle(rooms)
    while len(chosen) < count and any(by_room.values()):
        for room in rooms:
            if by_room[room] and len(chosen) < count:
                chosen.append(by_room[room].pop())
    return chosen


def changed_lines(commit: str) -> dict[str, set[int]]:
    """By file, the lines that a commit did not have."""
    command = ["git", "diff", "--unified=0", "--no-color", commit, "--", "kudu_core"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines: dict[str, set[int]] = {}
    path = ""
    for line in told.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(path, set()).update(range(first, first + count))
    return lines


def on_changed_lines(found: list[Mutation], commit: str) -> list[Mutation]:
    lines = changed_lines(commit)
    return [m for m in found if m.line in lines.get(m.path, ())]


def copy_of_tree(target: Path) -> None:
    """With the built kernels."""
    left_out = shutil.ignore_patterns(".git", ".venv*", "build", "dist", "__pycache__", ".*_cache", "*.c")
    shutil.copytree(ROOT, target, ignore=left_out, dirs_exist_ok=True)


def run(tree: Path, tests: tuple[str, ...], temporary: Path) -> tuple[bool, str]:
    """(whether the tests pass, the first that fails or what ended them)."""
    environment = os.environ | {
        "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(temporary),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=240",
        "-o", "faulthandler_timeout=0", "--no-header", "--tb=line", *tests,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"no end within {TIMEOUT_S} s"
    if done.returncode == 0:
        return True, ""
    noticed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return False, noticed[0] if noticed else f"exit status {done.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description="single-line mutations of the critical rooms")
    parser.add_argument("--sample", type=int, default=40, help="how many (40)")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("KUDU_CORE_SEED", "0")))
    parser.add_argument("--room", action="append", choices=ROOMS, help="only of this room")
    parser.add_argument("--only", help="PATH:LINE, all mutations of that line")
    parser.add_argument("--since", help="COMMIT, only of lines that have changed since it")
    parser.add_argument("--jobs", type=int, default=2, help="so many at a time (2)")
    parser.add_argument("--list", action="store_true", help="only count")
    arguments = parser.parse_args()

    known = explained()
    found = [m for m in mutations() if m.key not in known]
    stale = known.keys() - {m.key for m in mutations()}
    if stale:
        print("no longer there, to be taken out of ci/equivalent_mutations.txt:", *sorted(stale), sep="\n  ")
        return 1
    if arguments.room:
        found = [m for m in found if m.room in arguments.room]
    if arguments.only:
        found = [m for m in found if f"{m.path}:{m.line}" == arguments.only]
    if arguments.since:
        found = on_changed_lines(found, arguments.since)
    if arguments.list:
        for room, count in Counter(m.room for m in found).items():
            print(f"{room:12} {count:5} mutations of {', '.join(ROOMS[room].files)}")
        return 0
    chosen = found if arguments.only else sample(found, arguments.sample, arguments.seed)
    survivors: list[Mutation] = []
    with tempfile.TemporaryDirectory(prefix="kudu-core-mutate-") as scratch:
        free: Queue[Path] = Queue()
        for number in range(arguments.jobs):
            tree = Path(scratch) / f"tree-{number}"
            copy_of_tree(tree)
            free.put(tree)

        def one(mutation: Mutation) -> None:
            tree = free.get()
            temporary = Path(tempfile.mkdtemp(dir=scratch))
            path = tree / mutation.path
            source = path.read_text()
            started = time.monotonic()
            try:
                path.write_text(mutated(source, mutation))
                for tests in (ROOMS[mutation.room].tests, (mirror(mutation.path),), WHOLE_TABLE):
                    survived, how = run(tree, tests, temporary)
                    if not survived:
                        break
            finally:
                path.write_text(source)
                shutil.rmtree(temporary, ignore_errors=True)
                free.put(tree)
            if survived:
                survivors.append(mutation)
            outcome = "SURVIVED" if survived else f"caught by {how[:120]}"
            print(f"[{time.monotonic() - started:4.0f} s] {mutation}\n         {outcome}", flush=True)

        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(one, chosen))
    print(f"\nseed {arguments.seed}: {len(chosen)} mutations, {len(survivors)} survived")
    for mutation in survivors:
        print(f"  {mutation.key}")
    return int(len(survivors) > MAY_SURVIVE)


if __name__ == "__main__":
    sys.exit(main())
