"""The text for Prometheus is what its own parser reads, and says what ``metrics()`` says."""

from __future__ import annotations

from pathlib import Path

import pytest

import kudu_core as kc

parser = pytest.importorskip("prometheus_client.parser")


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            place = sample.name, frozenset(sample.labels.items())
            assert place not in found, place
            found[place] = sample.value
    return found


def test_it_says_what_metrics_say(path: Path) -> None:
    with kc.create_table(path, [("k", "int64")], "k") as table:
        table.insert([{"k": 1}])
        table.flush()
        table.get(1)
        text, metrics = kc.prometheus_text(table), table.metrics()
    found = samples(text)
    where = ("table", str(path))
    moving = {"history_s"}
    for metric in metrics.described:
        labels = frozenset((where, *metric.labels.items()))
        if metric.kind == "histogram":
            assert found[f"{metric.name}_count", labels] == metrics[f"{metric.key}_count"]
            assert found[f"{metric.name}_sum", labels] == pytest.approx(metrics[f"{metric.key}_elapsed_s"])
            ends = [
                (float(dict(at)["le"]), value)
                for (name, at), value in found.items()
                if name == f"{metric.name}_bucket" and labels <= at
            ]
            assert [value for _, value in sorted(ends)] == sorted(value for _, value in ends), "they add up"
            assert max(ends) == (float("inf"), found[f"{metric.name}_count", labels])
        elif metric.key not in moving:
            assert found[metric.name, labels] == metrics[metric.key], metric
    operations = {"operation": "get"}.items()
    assert found["kudu_core_latency_seconds_count", frozenset((where, *operations))] == 1


def test_each_family_is_described_once_for_several_tables(tmp_path: Path) -> None:
    with (
        kc.create_table(tmp_path / "a", [("k", "int64")], "k") as a,
        kc.create_table(tmp_path / "b", [("k", "int64")], "k") as b,
    ):
        text = kc.prometheus_text(a, b)
    helps = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP")]
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(helps) == len(set(helps)) and helps == types
    tables = [dict(at)["table"] for name, at in samples(text) if name == "kudu_core_rowsets"]
    assert tables == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert kc.prometheus_text() == ""


def test_a_path_with_anything_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / 'a "quoted" \\ name\nof two lines'
    with kc.create_table(folder, [("k", "int64")], "k") as table:
        found = samples(kc.prometheus_text(table))
    assert found["kudu_core_tablets", frozenset({("table", str(folder))})] == 1
