"""The metrics of tables in the text format of Prometheus, without its library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kudu_core.common.run.measure.histogram import Times

if TYPE_CHECKING:
    from kudu_core.table.report.metric_names import Metric
    from kudu_core.table.report.metrics import Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What an answer over HTTP says of itself."""


class Measured(Protocol):
    """An open table."""

    @property
    def path(self) -> str: ...

    def metrics(self) -> Metrics: ...


def prometheus_text(*tables: Measured) -> str:
    """What ``metrics()`` of open tables says, as Prometheus reads it; each series has the table's path as the
    label ``table``.

    Serve it at ``/metrics`` with the content type ``text/plain; version=0.0.4`` (``CONTENT_TYPE``), or write
    it to a file for the node exporter.

    >>> print(kc.prometheus_text(stock).splitlines()[0])
    # HELP kudu_core_tablets Tablets that take rows.
    """
    families: dict[str, list[tuple[str, Metric]]] = {}
    for table in tables:
        for metric in table.metrics().described:
            families.setdefault(metric.name, []).append((table.path, metric))
    lines: list[str] = []
    for name, found in families.items():
        first = found[0][1]
        lines.append(f"# HELP {name} {first.help}")
        lines.append(f"# TYPE {name} {first.kind}")
        for path, metric in found:
            lines += _series({"table": path, **metric.labels}, metric)
    return "\n".join(lines) + "\n" if lines else ""


def _series(labels: dict[str, str], metric: Metric) -> list[str]:
    if not isinstance(metric.value, Times):
        return [f"{metric.name}{_labels(labels)} {_number(metric.value)}"]
    times, lines = metric.value, []
    for end, count in times.buckets():
        lines.append(f"{metric.name}_bucket{_labels({**labels, 'le': end})} {count}")
    lines.append(f"{metric.name}_sum{_labels(labels)} {_number(times.total_s)}")
    lines.append(f"{metric.name}_count{_labels(labels)} {times.count}")
    return lines


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    """A path may have any bytes but a NUL; what is no text shows as what stands for it."""
    plain = value.encode("utf-8", "replace").decode()
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return repr(value) if isinstance(value, int) else repr(float(value))


__all__ = ["CONTENT_TYPE", "prometheus_text"]
