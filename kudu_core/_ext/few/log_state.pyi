from typing import Any

class SegmentRoom:
    salt: bytes
    end: int
    filled: int
    capacity: int
    last_ts: int
    last_lsn: int
    file: Any
    following: Any

class LogState:
    last_ts: int
    last_record_ts: int
    last_lsn: int
    durable_ts: int
    durable_lsn: int
    applied_ts: int
    committed_ts: int
    committed_lsn: int
    records: int
    bytes_appended: int
    failure: BaseException | None
    closed: bool
    mutex: Any
    clock: Any
    active: Any
    @property
    def advancing(self) -> Any: ...
    @property
    def in_flight(self) -> dict[int, int]: ...
    @property
    def syncs(self) -> bool: ...
    @property
    def groups(self) -> bool: ...
    @property
    def visible_ts(self) -> int: ...
    def __init__(self, mutex: Any, clock: Any, advancing: Any, durability: str) -> None: ...
    def append_plain(self, kind: int, schema_version: int, payload: bytes) -> int: ...
    def applied(self, ts: int) -> None: ...
    def advance(self) -> None: ...
