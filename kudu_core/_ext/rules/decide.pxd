# What is asked of a row: docs/format-log.md, "Row fingerprint".
cpdef enum:
    CALL_INSERT = 0
    CALL_INSERT_IGNORE = 1
    CALL_UPSERT = 2
    CALL_UPSERT_IGNORE = 3
    CALL_UPDATE = 4
    CALL_UPDATE_IGNORE = 5
    CALL_DELETE = 6
    CALL_DELETE_IGNORE = 7
