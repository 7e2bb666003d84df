"""Each long work is one span, a part below its whole, with its error where it has one."""

from __future__ import annotations

from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.engines.telemetry.otel import SpanListener

pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


def test_work_is_traced(path: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    options, listener = {"maintenance": "manual"}, SpanListener(tracer)
    with kc.create_table(path, [("k", "int64")], "k", options=options, listener=listener) as table:
        for first in (0, 1):
            table.insert({"k": range(first, 100, 2)})
            table.flush()
        with tracer.start_as_current_span("of the caller"):
            table.compact(full=True)
        with pytest.raises(kc.InvalidArgument):
            table.alter(drop=["nothing"])
    spans = exporter.get_finished_spans()
    by_name = {span.name: span for span in spans}
    assert [span.name for span in spans] == [
        "kudu_core flush", "kudu_core flush", "kudu_core merge", "kudu_core compact", "of the caller",
        "kudu_core alter",
    ]  # fmt: skip
    flush, merge = by_name["kudu_core flush"], by_name["kudu_core merge"]
    whole, caller = by_name["kudu_core compact"], by_name["of the caller"]
    assert merge.parent is not None and merge.parent.span_id == whole.context.span_id
    assert whole.parent is not None and whole.parent.span_id == caller.context.span_id
    assert flush.parent is None
    assert dict(flush.attributes or {}) == {
        "kudu_core.operation": "flush", "kudu_core.tablet": "1", "kudu_core.rows": 50,
    }  # fmt: skip
    assert flush.status.is_ok and not by_name["kudu_core alter"].status.is_ok
    assert "nothing" in str(by_name["kudu_core alter"].status.description)


def test_as_progress(path: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with kc.create_table(path, [("k", "int64")], "k") as table:
        table.verify(progress=SpanListener(provider.get_tracer("test")))
    assert [span.name for span in exporter.get_finished_spans()] == ["kudu_core verify"]
