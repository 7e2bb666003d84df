"""Metrics of open tables for the library ``prometheus_client`` (extra ``prometheus``).

``kudu_core.prometheus_text`` writes the same without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.measure.histogram import Times
from kudu_core.errors import Closed

if TYPE_CHECKING:
    from kudu_core.table.report.metric_names import Metric
    from kudu_core.table.table import Table


class TableCollector:
    """What a registry asks at each scrape: ``REGISTRY.register(TableCollector(table))``.

    Each series has the table's path as the label ``table``.  A table that was closed is left out.
    """

    def __init__(self, *tables: Table) -> None:
        self._tables = tables

    def describe(self) -> list[Any]:
        """Nothing, so that to register it asks no table."""
        return []

    def collect(self) -> Iterator[Any]:
        """The families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        kinds: dict[str, Any] = {
            "counter": CounterMetricFamily,
            "gauge": GaugeMetricFamily,
            "histogram": HistogramMetricFamily,
        }
        families: dict[str, Any] = {}
        for path, metric in self._metrics():
            labels = {"table": path, **metric.labels}
            family = families.get(metric.name)
            if family is None:
                made = kinds[metric.kind](metric.name, metric.help, labels=list(labels))
                family = families[metric.name] = made
            if isinstance(metric.value, Times):
                buckets = [(end, float(count)) for end, count in metric.value.buckets()]
                family.add_metric(list(labels.values()), buckets, metric.value.total_s)
            else:
                family.add_metric(list(labels.values()), metric.value)
        yield from families.values()

    def _metrics(self) -> Iterator[tuple[str, Metric]]:
        for table in self._tables:
            try:
                described = table.metrics().described
            except Closed:
                continue
            for metric in described:
                yield table.path, metric


__all__ = ["TableCollector"]
