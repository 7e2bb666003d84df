"""A folder of backups: written, chosen, read back.

A backup is the rows at a pinned snapshot, or the net changes since an earlier backup, as Arrow streams of
bounded size beside a manifest, renamed into place whole.  A restore puts a full backup and those that
continue it, oldest first, through one bulk ingest, as operations of one call.  So one net change for each key
is left, at one time.  The table is built beside its place and renamed.  Who writes the rows there is one
step: this process, or a distributed write whose runs are the backups' rows (``table/jobs/restore_job.py``).
"""
