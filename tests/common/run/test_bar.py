"""The line on standard error that shows how far a long work is."""

from __future__ import annotations

import io
import sys

import pytest

from kudu_core.common.run.measure import work as works
from kudu_core.common.run.measure.bar import Bar, line
from kudu_core.common.run.measure.work import LongWork
from kudu_core.events import Ended, Progress, TokensDropped, WorkEvent


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def event(kind: type[WorkEvent] = Progress, **values: object) -> WorkEvent:
    usual: dict[str, object] = {"operation": "backup", "work_id": 1, "unit": "rows"}
    return kind(**usual | values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "values, shown",
    [
        (
            {"phase": "writing", "done": 4_200_000, "total": 10_000_000, "rate": 2_100_000.0},
            "backup writing: [##########..............]  42%  4,200,000 rows, 2,100,000 rows/s, 3 s left",
        ),
        ({"done": 7, "rate": 3.5}, "backup: 7 rows, 3 rows/s"),
        (
            {"unit": "bytes", "done": 3 << 20, "total": 2 << 20, "rate": 1536.0},
            "backup: [########################] 100%  3.0 MiB, 1.5 KiB/s, 0 s left",
        ),
        ({"done": 0, "total": 5}, "backup: [........................]   0%  0 rows, 0 rows/s, 0 s left"),
        ({"done": 3, "total": 0, "unit": "bytes"}, "backup: 3 bytes, 0 bytes/s"),
    ],
)
def test_what_it_shows(values: dict[str, object], shown: str) -> None:
    assert line(event(**values)) == shown


def test_what_it_shows_at_the_end() -> None:
    assert line(event(Ended, done=1200, elapsed_s=1.26)) == "backup: 1,200 rows in 1.3 s"
    failed = event(Ended, phase="writing", elapsed_s=2.0, error="OSError(28, 'no room')")
    assert line(failed) == "backup writing: ended after 2.0 s: OSError(28, 'no room')"


def test_on_a_terminal_the_line_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "PROGRESS_S", -1.0)
    terminal = Terminal()
    with LongWork("verify", None, unit="bytes", total=2048, progress=Bar(terminal)) as work:
        work.advance(1024)
        work.advance(1024)
    first, second, last = terminal.getvalue().split("\r")
    assert "50%" in first and "100%" in second and last.rstrip().startswith("verify: 2.0 KiB in")
    assert len(last.rstrip("\n")) >= len(second), "nothing of the longer line stays"
    assert last.endswith("\n") and terminal.getvalue().count("\n") == 1


def test_elsewhere_there_is_a_line_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(works, "PROGRESS_S", -1.0)
    with LongWork("verify", None, progress=True) as work:
        work.advance(7)
    assert capsys.readouterr().err.startswith("verify: 7 rows in ")


def test_a_process_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    Bar()(event())
    closed = Terminal()
    closed.close()
    Bar(closed)(event())
    Bar(closed)(TokensDropped(tokens=1))
