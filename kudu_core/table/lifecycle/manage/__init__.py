"""Tables as wholes: listed, dropped, renamed.  docs/administration.md says what each promises.

``own_files`` knows what in a folder is a table's.  In an object store names are used once, so there a dropped
table leaves its place behind (``in_store/drop_in_store.py``), and none is renamed.
"""
