"""Some hundred or thousand rows of Arrow on their way to one record: as C columns, found, logged and laid.

``given_batch`` takes a record batch and encodes its keys, ``batch_payload`` makes the payload of its record,
``batch_stores`` looks its keys up and lays its rows, ``batch_writes`` is the walk.  What is no plain batch
takes the general path (``kudu_core/table/write/log_walk.py``), which says what is right.
"""
