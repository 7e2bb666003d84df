"""Long work of a table as spans of OpenTelemetry (extra ``otel``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kudu_core.events import Ended, Event, Started, WorkEvent

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer


class SpanListener:
    """A listener that makes a span of each flush, compaction, load, backup and other long work:
    ``open_table(path, "rw", listener=SpanListener())``.  Also what ``progress=`` may be.

    The span of a part, such as a merge, is a child of that of the whole; others are children of what the
    caller has under way.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        """``tracer``: None, that of the tracer provider that is set."""
        from opentelemetry import trace

        self._trace = trace
        self._tracer = tracer or trace.get_tracer("kudu_core")
        self._open: dict[int, Span] = {}
        """By work.  Each step on it is whole, for any thread."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._open[event.work_id] = self._tracer.start_span(
                f"kudu_core {event.operation}", context=self._context(event), attributes=_known(event)
            )
        elif isinstance(event, Ended):
            span = self._open.pop(event.work_id, None)
            if span is not None:
                self._end(span, event)

    def _context(self, event: Started) -> Any:
        """Of the whole; None: whatever the caller has under way."""
        whole = None if event.parent_id is None else self._open.get(event.parent_id)
        return None if whole is None else self._trace.set_span_in_context(whole)

    def _end(self, span: Span, event: Ended) -> None:
        span.set_attribute(f"kudu_core.{event.unit}", event.done)
        if event.error is not None:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, event.error))
        span.end()


def _known(event: WorkEvent) -> dict[str, str]:
    known = {"kudu_core.operation": event.operation}
    if event.tablet_id:
        known["kudu_core.tablet"] = event.tablet_id
    return known


__all__ = ["SpanListener"]
