"""Tables in object stores: made, opened, kept in order (docs/protocol-objects.md).

``store_location`` is where a path leads.  An open for writing (``open_store_writer``) takes the lease, begins
an epoch by a put of TABLE (``table_object``), reads snapshots and log (``found``), and puts its fence into
the log (``wal.objects``); the engine above is the one of a folder, with a ``StoreHome`` for what differs:
checkpoints, and what is deleted when, of distributed writes by ``job_sweep``.  A reader
(``open_store_reader``) reads the same, and looks at TABLE again.
"""
