"""An open table: what one process has of a table until it closes it.

``engine`` is the whole.  Its parts: ``table_file`` (TABLE), ``tablets``, ``memory`` with ``throttle``,
``writers`` with ``job_marks``, ``pins``, ``journal``, ``read_end`` (how far a reader sees) and ``closing``.
"""
