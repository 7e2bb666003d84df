"""The collector gives a registry what ``prometheus_text`` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.engines.telemetry.prometheus import TableCollector

client = pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "history_seconds" not in sample.name  # which goes on from look to look
    }


def test_a_registry_has_what_the_text_says(tmp_path: Path) -> None:
    registry = client.CollectorRegistry()
    with (
        kc.create_table(tmp_path / "a", [("k", "int64")], "k") as a,
        kc.create_table(tmp_path / "b", [("k", "int64")], "k") as b,
    ):
        a.insert([{"k": 1}])
        a.flush()
        b.get(1)
        registry.register(TableCollector(a, b))
        found = samples(client.generate_latest(registry).decode())
        assert found == samples(kc.prometheus_text(a, b))
        assert found["kudu_core_rowsets", frozenset({("table", str(tmp_path / "a"))})] == 1
        b.close()
        left = samples(client.generate_latest(registry).decode())
        assert {dict(labels)["table"] for _, labels in left} == {str(tmp_path / "a")}


def test_to_register_it_asks_no_table(tmp_path: Path) -> None:
    with kc.create_table(tmp_path / "a", [("k", "int64")], "k") as table:
        pass
    client.CollectorRegistry().register(TableCollector(table))
