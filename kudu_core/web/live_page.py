"""A table as a server shows it: its newest state, asked for at most so often."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kudu_core.errors import KuduError
from kudu_core.page.render.page_html import content_html, page_html
from kudu_core.table.opened.handle import HandleOwner, handle_of
from kudu_core.table.report.gather.gathered import report_of
from kudu_core.table.report.metrics import metrics
from kudu_core.table.report.prometheus_text import prometheus_text

if TYPE_CHECKING:
    from kudu_core.page.report_page import Report
    from kudu_core.table.opened.handle import Handle
    from kudu_core.table.report.metrics import Metrics


@dataclass(frozen=True, slots=True)
class _Shown:
    """What was last made of the table."""

    report: Report
    made_s: float
    texts: dict[str, bytes]
    """By what is asked for; each is made when it is first asked for."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """What has numbers for Prometheus."""

    handle: Handle

    @property
    def path(self) -> str:
        return self.handle.path

    def metrics(self) -> Metrics:
        return metrics(self.handle.opened())


class LivePage:
    """What is shown of a table.  Thread safe without a lock: of two requests at one time both may look."""

    def __init__(self, table: HandleOwner, refresh_s: float) -> None:
        self._table = table
        self._refresh_s = refresh_s
        self._shown: _Shown | None = None
        """Replaced, never changed but for its texts."""

    def page(self) -> bytes:
        return self._text("page", lambda report: page_html(report.data, live_s=self._refresh_s))

    def content(self) -> bytes:
        """What is inside of the page's ``main``."""
        return self._text("content", lambda report: content_html(report.data))

    def data(self) -> bytes:
        return self._text("data", lambda report: json.dumps(report.data.to_json()))

    def metrics(self) -> bytes:
        """Of now, in the text format of Prometheus."""
        handle = handle_of(self._table)
        handle.refresh()
        return prometheus_text(_Measured(handle)).encode()

    def health(self) -> tuple[bool, bytes]:
        """Whether the table can be read, and the facts as JSON."""
        handle = handle_of(self._table)
        told: dict[str, Any]
        try:
            handle.refresh()
            engine = handle.opened()
        except (KuduError, OSError) as error:
            told = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        else:
            poisoned = engine.poisoned
            told = {
                "ok": poisoned is None,
                "mode": "rw" if engine.writer else "r",
                "epoch": engine.table_file.state.epoch,
                "timestamp": engine.visible_ts,
                "refresh_lag_s": 0.0 if engine.writer else max(0.0, handle.now_s() - handle.refreshed_s),
                "unreplayed": None if engine.unreplayed is None else str(engine.unreplayed),
                "error": None if poisoned is None else f"{type(poisoned).__name__}: {poisoned}",
            }
        return bool(told["ok"]), json.dumps(told).encode()

    def _text(self, name: str, render: Callable[[Report], str]) -> bytes:
        shown = self._newest()
        found = shown.texts.get(name)
        if found is None:
            found = shown.texts[name] = render(shown.report).encode("utf-8", "backslashreplace")
        return found

    def _newest(self) -> _Shown:
        handle = handle_of(self._table)
        now_s = handle.now_s()
        shown = self._shown
        if shown is None or now_s - shown.made_s >= self._refresh_s:
            handle.refresh()
            shown = self._shown = _Shown(report_of(handle), now_s, {})
        return shown


__all__ = ["LivePage"]
