"""``repair``: what can be read of a damaged table, as a new one beside it (docs/repair.md).

Each room has a reader that reports damage instead of raising it: ``wal/salvage.py`` (every sound record, and
the gaps that were durable), ``tablet/store/salvage.py`` (every sound edit), ``cfile/files/salvage.py`` (files
without their header or footer) and ``rowset/disk/salvage.py`` (rows, with a mask of the known cells).

``finding`` says what the table is, from TABLE or its copy; ``guessing`` from what else is left.  ``tablet``
walks a tablet in ranges of keys and turns rowsets and records into *facts* about keys, each with a time.
``facts`` is the rule by which facts become rows; nothing else decides.  ``writing`` puts the rows through one
bulk insert into a table under a temporary name, verifies it and renames it.
"""
