"""Which maintenance is done, when and by whom.

The flush lane is one thread that flushes memory and drops log segments.  The compaction lane has
``maintenance_threads`` threads that compact deltas, merge rowsets, collect history and delete retired files;
so a flush never waits behind a compaction.  ``lane`` has what both have in common: threads, and what is left
alone for some seconds after an operation of it failed.  Both ask ``operations`` what could be done and
``scoring`` what comes first; which deltas are worth compacting, and which columns, says ``delta_policy`` by
how much is changed and how often it is scanned.  ``Table.maintain`` does the same on the caller's thread, and
Spark's ``maintain`` in several tablets at a time.

After five seconds without a record the log gives back the room that it keeps for more: spare segments, and
the segment that takes records once all of it is in files.  Retired files are deleted when the edit that
dropped them is durable, no view of this process holds them, and either ``file_grace_s`` has passed or nobody
has the table open for reading.

Each operation is reported to the listener.  ``table/opened/journal.py`` keeps the last thousand and sums of
all of them, as long as the handle lives.
"""
