"""Writes and merges whose files other processes make.

A distributed write goes through three kinds of processes.  Tasks *stage* runs (``stager``): rows of one
tablet in the order of keys, already encoded, in ``staging/<job>/``.  Other tasks *resolve* the runs of the
attempts that won, each some tablets (``resolve``): they open the table for reading, and walk as a bulk ingest
does, at the cut P that this reader sees.  A run of absent keys that is a range of keys by itself is not
read again: its file becomes the rowset's.  What a tablet comes to, a ``Resolution``, names files in staging.

The commit (``commit``, ``apply_job``) takes the lease and the flush lanes of the tablets.  A resolution still
holds if (1) the rowsets that it changes still exist, (2) no store has received one of its keys since P, and
(3) the history since P has not been collected.  A tablet whose resolution does not hold is built anew by the
lease holder, and so are all tablets when nobody resolved (``df.write.format``).  A job below the thresholds
of a bulk ingest goes through the log, as any call of its size; one whose rows are with the driver anyway is
not staged at all (``held``).

In an object store what tasks write lies in ``files/<job>/``, and tablets name it there: nothing is linked or
copied (protocol B13).

The record has the job's id.  Before the log may drop the record a mark in ``staging/`` says the same
(``table/lifecycle/staging_folders.py``).  So a commit that is repeated, by whatever process, learns when the
job was applied, until the mark is older than ``staging_grace_s``.  ``docs/spark.md`` is the users' page.
"""
