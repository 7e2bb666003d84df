"""Every command: its name, the module that has it, and a line of help.

A command is one line here and one ``click.Command`` in the module, under the command's name with ``_`` for
``-`` and ``_command`` after it.  The module is imported when the command is asked for, so that ``--help``
loads none of them.
"""

from __future__ import annotations

COMMANDS: dict[str, tuple[str, str]] = {
    # look
    "info": ("look.info_commands", "What a table is: key, columns, rows, sizes, options, tags."),
    "schema": ("look.info_commands", "The columns of a table."),
    "layout": ("look.info_commands", "The rowsets of every tablet."),
    "stats": ("look.info_commands", "Sizes and counts by table, tablet, rowset or column."),
    "list": ("look.info_commands", "The tables below a folder."),
    "head": ("look.row_commands", "The first rows."),
    "get": ("look.row_commands", "One row by its key."),
    "scan": ("look.row_commands", "Rows and columns, with a condition."),
    "count": ("look.row_commands", "How many rows there are."),
    "history": ("look.change_commands", "Every version of one row."),
    "changes": ("look.change_commands", "What changed between two times, or changes from now on."),
    "sql": ("look.sql_commands", "Run one SQL statement."),
    # change
    "create": ("change.create_commands", "Make a table."),
    "import": ("change.import_commands", "Write the rows of files into a table."),
    "export": ("change.export_commands", "Write rows to a file or a folder."),
    "alter": ("change.alter_commands", "Change columns, ranges or options."),
    "tag": ("change.whole_commands", "Name a moment and keep its history; without a name: list."),
    "truncate": ("change.whole_commands", "Delete all rows."),
    "restore-to": ("change.whole_commands", "Make the rows of a past time those of now."),
    "clone": ("change.whole_commands", "Make another table with the same rows."),
    "rename": ("change.whole_commands", "Move a table to another path."),
    "drop": ("change.whole_commands", "Remove a table."),
    # care
    "flush": ("care.maintenance_commands", "Write what only memory and the log hold into rowsets."),
    "compact": ("care.maintenance_commands", "Merge what makes reading slow."),
    "gc": ("care.maintenance_commands", "Drop history and files that nobody needs any more."),
    "verify": ("care.check_commands", "Read and check every byte of a table."),
    "repair": ("care.check_commands", "Make a new table of what can be read of a damaged one."),
    "backup": ("care.backup_commands", "Write a backup, whole or of what changed since."),
    "restore": ("care.backup_commands", "Make a table of a backup."),
    "top": ("care.top_commands", "What goes on in a table, live."),
    "bench": ("care.bench_commands", "Measure this machine, beside Parquet and DuckDB."),
    "inspect": ("inside.inspect_commands", "A stored file, byte for byte."),
    "completion": ("look.completion_commands", "A script for the shell that completes commands."),
}
