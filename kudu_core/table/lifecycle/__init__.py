"""A table is made, opened, altered, tidied.

An open for writing takes the lease and reads TABLE, the log and the manifests.  It checks that every file
that they name is there.  Only then is the first byte written: the new epoch, in TABLE.  It is ``Corruption``

* if TABLE is older than what the log or a manifest knows;
* if a manifest ends before an edit that TABLE or the last CHECKPOINT has seen.  TABLE is written at every
  clean close, a CHECKPOINT by ``flush()`` too;
* if the log was dropped without a word of a tablet, or a file is missing;
* if, after a clean close, a manifest lacks an ingest of the log.

Replay (``tablet/replay``) lays the records after the last CHECKPOINT into memory, by key and
timestamp.  It makes room as a write does, and closes stores that are full.  None of a WRITE is laid before
all of it has room and a place.  For a record that cannot be replayed though its checksum is good, an open for
writing raises ``Corruption`` with its place, number, time and reason.  It has deleted nothing then, and says
the same each time.  An open for reading ends before that record, warns (``UnreplayedWarning``) and keeps it
in ``Table.unreplayed``.

A reader takes no lock and writes nothing.  It reads the log's segments, then TABLE, then the manifests, and
then the log again, so that nothing can fall between.
"""
