"""All that a report shows of a table, asked of it at one moment."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from kudu_core.options import DEFAULTS
from kudu_core.page.report_data import ActivityFacts, ReportData
from kudu_core.page.report_page import Report
from kudu_core.table.lifecycle.lost import lost_usage
from kudu_core.table.report.gather.column_facts_of import SAMPLED_COLUMNS, SAMPLED_FILES, column_facts
from kudu_core.table.report.gather.maintenance_facts_of import maintenance_facts, operations_of
from kudu_core.table.report.gather.store_facts_of import log_facts, memory_facts
from kudu_core.table.report.gather.tablet_facts_of import in_key_order, tablet_facts
from kudu_core.table.report.gather.time_facts_of import activity_facts, history_facts, horizon_of
from kudu_core.table.report.metrics import metrics
from kudu_core.tablet.maintain.scoring import MERGE

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle

TIMED_FILES = 32
"""Base files of which the times of inserts are read."""
REMOTE_FILES = 2
"""The same, and files that are sampled, of a table in an object store, where each is some requests."""


def report_of(handle: Handle, path: str | os.PathLike[str] | None = None) -> Report:
    """What ``Table.report`` does."""
    made = Report(gathered(handle))
    if path is not None:
        made.save(path)
    return made


def gathered(handle: Handle) -> ReportData:
    """Of the newest state that the handle shows; a reader whose files the writer replaces meanwhile looks
    again."""
    return handle.retrying(_gathered, handle)


def _gathered(engine: Engine, handle: Handle) -> ReportData:
    schema = engine.schema
    tablets = engine.tablets
    views = {tablet.id: tablet.view for tablet in tablets}
    rowsets = [rowset for view in views.values() for rowset in view.rowsets]
    horizon = horizon_of(engine)
    flushes, compactions = operations_of(engine, horizon)
    chosen = {op.tablet_id: op.rowsets for op in compactions if op.kind == MERGE}
    sampled, timed = (REMOTE_FILES, REMOTE_FILES) if engine.in_store else (SAMPLED_FILES, TIMED_FILES)
    activity = activity_facts(engine, views.values(), rowsets, timed)
    lost = (0, 0) if engine.in_store else lost_usage(engine.fs, engine.path)
    places = in_key_order(tablets)
    log = log_facts(handle, engine, views)
    asked = engine.asked_options.to_json()
    return ReportData(
        path=engine.path,
        uuid=engine.uuid.hex(),
        epoch=engine.table_file.state.epoch,
        mode="rw" if engine.writer else "r",
        in_store=engine.in_store,
        version=import_module("kudu_core").__version__,
        made_us=engine.clock.now_us(),
        primary_key=list(schema.key_names),
        schema_version=schema.version,
        partitioning=engine.partitions.told,
        options=engine.options.to_json(),
        options_changed=[name for name, value in asked.items() if value != DEFAULTS[name]],
        unreplayed=None if engine.unreplayed is None else str(engine.unreplayed),
        columns=column_facts(schema, rowsets, sampled),
        tablets=[
            tablet_facts(engine, views, t, places[t.id], horizon, chosen.get(t.id, ())) for t in tablets
        ],
        history=history_facts(engine, rowsets, horizon),
        activity=activity,
        maintenance=maintenance_facts(engine, flushes, compactions),
        memory=memory_facts(engine, list(views.values())),
        log=log,
        lost_files=lost[0],
        lost_bytes=lost[1],
        tokens=len(engine.writers.applied_writes),
        metrics={name: float(value) for name, value in metrics(engine).items()},
        unknown=_unknown(engine, activity, len(rowsets), sampled),
    )


def _unknown(engine: Engine, activity: ActivityFacts, rowsets: int, sampled: int) -> list[str]:
    """In words, what the numbers do not say."""
    found = []
    if not engine.writer:
        found.append(
            "This is a reader's picture: which maintenance the writer has done or has under way, its memory "
            "and how long its log is to a replay, only the writer knows. Candidates are those that files and "
            "the log would give."
        )
    if engine.in_store and not engine.writer:
        found.append("The objects of the log are not listed for a reader.")
    if activity.unplaced_rows:
        found.append(
            f"When {activity.unplaced_rows:,} rows were inserted was not read from their files: more than "
            "the newest rowsets' times are not looked at."
        )
    if rowsets > sampled:
        found.append(
            f"How columns are encoded, and what text takes plainly, comes from the first page of each "
            f"column in {sampled} of {rowsets:,} base files."
        )
    if len(engine.schema.columns) > SAMPLED_COLUMNS:
        found.append(f"Only the first {SAMPLED_COLUMNS} columns were looked at for that.")
    found.append(
        "Changes that history has dropped, and updates of rows that were folded into files, are not "
        "counted: what is told of the past is what is stored of it."
    )
    return found


__all__ = ["gathered", "report_of"]
