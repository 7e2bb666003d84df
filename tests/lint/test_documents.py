"""What the documents say is there, is there; and what is there, they say."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import kudu_core as kc

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
REFERENCE_PAGES = [*(ROOT / "docs/api").glob("*.md"), ROOT / "docs/errors.md"]
REFERENCE = "".join([README, *(page.read_text() for page in REFERENCE_PAGES)])
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *(path for room in ("tests", "bench", "examples") for path in sorted((ROOT / room).rglob("README.md"))),
]
MOST_COLUMNS, MOST_LINES = 100, 5
"""Of a line, and of a paragraph."""
WIDE: set[str] = set()
"""Documents that were written before this was asked.  The list may only shrink."""


@pytest.mark.parametrize("name", kc.__all__)
def test_public_name_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(kc, name)), f"{name} has no docstring"
    assert re.search(rf"\b{name}\b", REFERENCE), f"no README.md, docs/api/, docs/errors.md mentions {name}"


def test_public_methods_have_docstrings() -> None:
    bare = []
    for name in kc.__all__:
        cls = getattr(kc, name)
        if inspect.isclass(cls) and not issubclass(cls, Exception) and not dataclasses.is_dataclass(cls):
            for attribute, value in vars(cls).items():
                if not attribute.startswith("_") and callable(value) and not inspect.getdoc(value):
                    bare.append(f"{name}.{attribute}")
    # Batch's say what Table's say, Arrow's conversions what their names say.
    assert [b for b in bare if not b.startswith(("Batch.", "Scan.to_", "Snapshot."))] == []


def test_every_option_says_its_unit_and_range() -> None:
    source = inspect.getsource(kc.Options)
    for field in dataclasses.fields(kc.Options):
        assert re.search(rf'^    {field.name}: .*\n    """', source, re.M), f"{field.name} is not documented"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_files_that_documents_name_are_there(path: Path) -> None:
    folders, suffixes = "ci|docs|tests|bench|examples|kudu_core", "py|pyx|pyi|pxd|sh|md|txt|json"
    pattern = rf"`((?:{folders})/[\w./-]+?\.(?:{suffixes}))(?:::\w+)?`"
    named = re.findall(pattern, path.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_lines_and_paragraphs_are_short(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    lines = path.read_text().splitlines()
    # A row of a table cannot be cut.
    wide = [n for n, line in enumerate(lines, 1) if len(line) > MOST_COLUMNS and not line.startswith("|")]
    found = [f"{name}:{n}: {len(lines[n - 1])} columns" for n in wide]
    length, in_code = 0, False
    for number, line in enumerate(lines, 1):
        text = line.strip()
        in_code ^= text.startswith("```")
        goes_on = text and not in_code and not text.startswith(("|", "#", "```"))
        begins = length == 0 or re.match(r"[*-] |\d+\. ", text)  # a point of a list is a paragraph
        length = 0 if not goes_on else 1 if begins else length + 1
        if length == MOST_LINES + 1:
            found.append(f"{name}:{number}: a paragraph of more than {MOST_LINES} lines")
    assert (found == []) == (name not in WIDE), "\n".join(found) or f"{name} is short: take it from WIDE"


def test_every_switch_is_explained() -> None:
    """What is read from the environment, by the package, its build or its tests."""
    told = set(re.findall(r"`(KUDU_CORE_[A-Z_]+)`", (ROOT / "CONTRIBUTING.md").read_text()))
    found = set()
    for folder in ("kudu_core", "tests", "bench", "ci", "."):
        files = (ROOT / folder).glob("*.*") if folder == "." else (ROOT / folder).rglob("*.*")
        for path in files:
            if path.suffix in (".py", ".sh"):
                found |= set(re.findall(r'(?:environ(?:\.get\()?\W|^SWITCH = "|^export |\$\{)'
                                        r'"?(KUDU_CORE_[A-Z_]+)', path.read_text(), re.M))  # fmt: skip
    assert found == told


def test_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == kc.__version__
    assert f"## {kc.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("path", sorted((ROOT / "ci").glob("*.sh")), ids=lambda p: p.name)
def test_scripts_parse(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)
    assert "set -euo pipefail" in path.read_text()


def test_ci_runs_the_one_script() -> None:
    lines = [
        line
        for line in (ROOT / ".ci/run").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    assert lines == ['exec "$(dirname "$0")/../ci/test.sh"']


def test_ci_runs_every_room() -> None:
    """Each folder of ``tests`` that has tests, of one of them two parts, and ``bench``."""
    script = (ROOT / "ci/test.sh").read_text()
    rooms = re.search(r"^ROOMS=\(([^)]*)\)", script, re.M)
    assert rooms is not None
    folders = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(rooms[1].split()) == folders | {"bench", "table_doors"}
    queue = re.search(r"^QUEUE=\(([^)]*)\)", script, re.M)
    assert queue is not None
    assert sorted(queue[1].split()) == sorted([*rooms[1].split(), "checks"])
    readme = (ROOT / "tests/README.md").read_text()
    assert [folder for folder in sorted(folders) if f"| `{folder}/` |" not in readme] == []


def test_sections_that_are_cited_are_there() -> None:
    """``docs/format.md, "Rows files"``, in code and documents: a page of ours has a section of that name."""
    pages = {page.name: page.read_text() for page in (ROOT / "docs").glob("*.md")}
    headings = {
        name: {found.replace("`", "").strip() for found in re.findall(r"^#+(.*)$", text, re.MULTILINE)}
        for name, text in pages.items()
    }
    cited = re.compile(r'docs/([\w-]+\.md)`?,\s+"([^"]+)"')
    code = [p for room in ("kudu_core", "tests", "bench", "ci") for p in (ROOT / room).rglob("*.[ps][yh]*")]
    wrong = [
        f'{path.relative_to(ROOT)}: docs/{page}, "{section}"'
        for path in [*code, *DOCUMENTS]
        if path.suffix in (".py", ".pyx", ".pxd", ".pyi", ".sh", ".md")
        for page, section in cited.findall(path.read_text())
        if page in headings and section.replace("`", "") not in headings[page]
    ]
    assert not wrong, "\n".join(wrong)
