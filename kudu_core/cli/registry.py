"""Every command: its name, where below ``kudu_core.cli`` its ``click.Command`` is, a line of help.

A new command is one entry here.  The module is imported when the command is asked for, so that ``--help``
loads none of them.
"""

from __future__ import annotations

COMMANDS: dict[str, tuple[str, str]] = {
    # look
    "info": ("look.info_commands:info_command", "What a table is: key, columns, rows, sizes, options, tags."),
    "schema": ("look.info_commands:schema_command", "The columns of a table."),
    "layout": ("look.info_commands:layout_command", "The rowsets of every tablet."),
    "stats": ("look.info_commands:stats_command", "Sizes and counts by table, tablet, rowset or column."),
    "list": ("look.info_commands:list_command", "The tables below a folder."),
    "head": ("look.row_commands:head_command", "The first rows."),
    "get": ("look.row_commands:get_command", "One row by its key."),
    "scan": ("look.row_commands:scan_command", "Rows and columns, with a condition."),
    "count": ("look.row_commands:count_command", "How many rows there are."),
    "history": ("look.change_commands:history_command", "Every version of one row."),
    "changes": ("look.change_commands:changes_command", "What changed between two times, or from now on."),
    "sql": ("look.sql_commands:sql_command", "Run one SQL statement."),
    "report": ("look.page_commands:report_command", "The page of a table, as one HTML file."),
    "serve": ("look.page_commands:serve_command", "The page of a table, live over HTTP."),
    "metrics": ("look.page_commands:metrics_command", "The numbers of a table for Prometheus."),
    # change
    "create": ("change.create_commands:create_command", "Make a table."),
    "import": ("change.import_commands:import_command", "Write the rows of files into a table."),
    "export": ("change.export_commands:export_command", "Write rows to a file or a folder."),
    "alter": ("change.alter_commands:alter_command", "Change columns, ranges or options."),
    "repartition": ("change.partition_commands:repartition_command", "Give a table other partitions."),
    "index": ("change.partition_commands:index_command", "Make, drop or list indexes."),
    "tag": ("change.whole_commands:tag_command", "Name a moment and keep its history."),
    "truncate": ("change.whole_commands:truncate_command", "Delete all rows."),
    "restore-to": ("change.whole_commands:restore_to_command", "Bring back the rows of a past time."),
    "clone": ("change.whole_commands:clone_command", "Make another table with the same rows."),
    "rename": ("change.whole_commands:rename_command", "Move a table to another path."),
    "drop": ("change.whole_commands:drop_command", "Remove a table."),
    # care
    "flush": ("care.maintenance_commands:flush_command", "Write to files what only memory holds."),
    "compact": ("care.maintenance_commands:compact_command", "Merge what makes reading slow."),
    "gc": ("care.maintenance_commands:gc_command", "Drop history and files that nobody needs any more."),
    "verify": ("care.check_commands:verify_command", "Read and check every byte of a table."),
    "repair": ("care.check_commands:repair_command", "Make a table of what can be read."),
    "backup": ("care.backup_commands:backup_command", "Write a backup, whole or of what changed since."),
    "restore": ("care.backup_commands:restore_command", "Make a table of a backup."),
    "top": ("care.top_commands:top_command", "What goes on in a table, live."),
    "bench": ("care.bench_commands:bench_command", "Measure this machine, beside Parquet and DuckDB."),
    "inspect": ("inside.inspect_commands:inspect_command", "A stored file, byte for byte."),
    "completion": ("look.completion_commands:completion_command", "A script for a shell: completion."),
}
