"""Rules of docs/protocol.md, docs/protocol-objects.md and the comments that cite them belong together.

A citation is the word "protocol" and a code, or several: "protocol W4", "protocol G3 to G5, G7".  What a
check reports may begin with a bare code, as in "N6: D decreased".
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.lint.package.sources import parsed, walk

ROOT = Path(__file__).resolve().parents[2]
PROTOCOLS = [ROOT / "docs" / "protocol.md", ROOT / "docs" / "protocol-objects.md"]
SOURCES = {".py", ".pyx", ".pxd", ".pyi"}
CODE = r"[A-Z]\d{1,2}"
CITATION = re.compile(rf"\b[Pp]rotocol\s+({CODE}(?:(?:,\s+|\s+and\s+|\s+to\s+){CODE})*)")
BARE = re.compile(rf"(?<![\w.])({CODE})(?![\w-])")
TOLD = re.compile(rf"^({CODE}(?:\|{CODE})*)(?::|$)")
"""How a string begins that names the rule which does not hold."""


def rules_of(text: str) -> list[str]:
    """The codes that paragraphs begin with."""
    return re.findall(rf"^\*\*({CODE})\*\* ", text, re.M)


RULES = [rule for page in PROTOCOLS for rule in rules_of(page.read_text())]


def codes_of(citation: str) -> Iterator[str]:
    """Every code of a citation; "W1 to W3" cites three."""
    for part in re.split(r",\s+|\s+and\s+", citation):
        first, *last = re.findall(CODE, part)
        end = last[0] if last else first
        assert first[0] == end[0], f"{part}: from one letter to another"
        yield from (f"{first[0]}{number}" for number in range(int(first[1:]), int(end[1:]) + 1))


def remarks(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each comment and of each string that is a statement.  Comments that follow each other
    are one text, so that a citation may go on in the next line."""
    fresh = True
    pending: list[str] = []
    begun = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if pending and token.start[0] != last + 1:
                yield begun, "\n".join(pending)
                pending = []
            if not pending:
                begun = token.start[0]
            pending.append(token.string.lstrip("# "))
            last = token.start[0]
        elif token.type == tokenize.STRING and fresh:
            yield token.start[0], token.string
        starts = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
        fresh = token.type in starts or (fresh and token.type in (tokenize.NL, tokenize.COMMENT))
    if pending:
        yield begun, "\n".join(pending)


def strings(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of strings of a module that name a rule, as checks report it."""
    for node in walk(parsed(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and TOLD.match(node.value):
            yield node.lineno, node.value


@cache
def remarks_of(path: Path) -> list[tuple[int, str]]:
    """Those of a file that says something like a code; most do not, and taking files apart is slow."""
    source = path.read_text()
    return list(remarks(source)) if BARE.search(source) or "PROTOCOL" in source else []


def cited(path: Path) -> Iterator[tuple[int, str]]:
    """(line, code) of each code that a file cites."""
    for line, text in remarks_of(path):
        for match in CITATION.finditer(text):
            yield from ((line, code) for code in codes_of(match.group(1)))
    if path.suffix == ".py" and re.search(rf'"{CODE}[:"|]', source := path.read_text()):
        for line, text in strings(source):
            found = TOLD.match(text)
            assert found is not None
            yield from ((line, code) for code in found.group(1).split("|") if code in RULES)


def files(top: str) -> list[Path]:
    here = Path(__file__).resolve()
    found = sorted(path for path in (ROOT / top).rglob("*") if path.suffix in SOURCES)
    return [path for path in found if path != here]


@cache
def citations(top: str) -> dict[str, str]:
    """For each code that is cited below a folder, one place that cites it."""
    found: dict[str, str] = {}
    for path in files(top):
        for line, code in cited(path):
            found.setdefault(code, f"{path.relative_to(ROOT)}:{line}")
    return found


def test_each_rule_has_one_code() -> None:
    assert len(RULES) > 60
    assert len(set(RULES)) == len(RULES)
    by_letter: dict[str, list[int]] = {}
    for code in RULES:
        by_letter.setdefault(code[0], []).append(int(code[1:]))
    for letter, numbers in by_letter.items():
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), f"rules {letter} are not counted from 1"


@pytest.mark.parametrize("top", ["kudu_core", "tests"])
def test_each_code_that_is_cited_is_a_rule(top: str) -> None:
    unknown = {code: place for code, place in citations(top).items() if code not in RULES}
    assert not unknown, f"docs/protocol*.md have no such rule: {unknown}"


@pytest.mark.parametrize("top", ["kudu_core", "tests"])
def test_each_rule_is_cited(top: str) -> None:
    """By the code that keeps it, and by a test that would fail without it."""
    missing = {code for code in RULES if code not in citations(top)}
    assert missing == set()


@pytest.mark.parametrize("top", ["kudu_core", "tests"])
def test_codes_are_cited_in_one_form(top: str) -> None:
    """A reader who has never heard of the rules must see where "W4" leads."""
    found = []
    for path in files(top):
        for line, text in remarks_of(path):
            rest = CITATION.sub("", text)
            names = {"S3"} if "objects" in path.parts else set()  # there it is a store
            found += [
                f"{path.relative_to(ROOT)}:{line}: {code}"
                for code in BARE.findall(rest)
                if code in RULES and code not in names
            ]
            if "PROTOCOL" in rest:
                found.append(f"{path.relative_to(ROOT)}:{line}: PROTOCOL")
    assert not found, 'write "protocol" before the code:\n' + "\n".join(found)


def test_the_rule_finds_what_it_is_for(tmp_path: Path) -> None:
    assert list(codes_of("G3 to G5, G7")) == ["G3", "G4", "G5", "G7"]
    assert list(codes_of("N12 and N14")) == ["N12", "N14"]
    path = tmp_path / "sample.py"
    path.write_text(
        '"""A walk (protocol F1\nto F3)."""\n'
        "x = 1  # as protocol\n"
        "# E1 wants it\n"
        'y = "protocol W1 in a string cites nothing"\n'
        'hold(x, "N6|N7")\n'
        'say("N2: a file holds too much", "T0 is a column")\n'
    )
    assert sorted(code for _, code in cited(path)) == ["E1", "F1", "F2", "F3", "N2", "N6", "N7"]
