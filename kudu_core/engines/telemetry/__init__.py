"""Metrics and long work of tables for what watches over services: docs/observability.md."""
