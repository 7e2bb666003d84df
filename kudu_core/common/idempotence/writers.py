"""Writes that name themselves: what a caller says of one, what a table keeps of it, and what a repetition is.

A writer names its writes ``(app_id, version)``, its versions ascending.  A table keeps of each writer the
last version, with the fingerprint of its rows, and those of some versions before it.  A write whose version
is known with the same rows is a repetition, and nothing happens; with other rows it is refused, since to
take it for done would lose them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kudu_core.common.format.members import integer, text
from kudu_core.common.idempotence.fingerprint import NO_ROWS, Fingerprint
from kudu_core.common.run.clock import hybrid
from kudu_core.errors import InvalidArgument, TokenMismatch, shown

MAX_APP_ID_BYTES = 1024
"""Of UTF-8: the longest name of a writer."""
MAX_SOURCE_BYTES = 256
"""Of UTF-8: the longest id of what a writer's rows come from."""
MAX_VERSION = 1 << 63
"""Versions lie below."""
RECENT_VERSIONS = 16
"""Versions before the last one whose fingerprints are kept."""
MAX_TOKENS = 32_768
"""Writers that a table knows at a time."""
TOKENS_DROPPED = 1024
"""So many go at once, the oldest first, when there are too many."""
YOUNG_S = 3600
"""Tokens younger than this do not go for their number."""
CHECK, SKIP = "check", "skip"
ON_REPEAT = (CHECK, SKIP)

Counts = tuple[int, int, int, int]
"""Inserted, updated, deleted, ignored."""


GIVEN_UP = -1
"""In the place of a version: a distributed write that nobody may commit any more."""


@dataclass(frozen=True, slots=True)
class AppliedWrite:
    """The last write of one idempotent writer."""

    version: int
    ts: int
    counts: Counts
    rows: Fingerprint = NO_ROWS
    source: str | None = None
    """The id of what the rows come from, such as a query of Spark; None: nobody has told."""
    recent: tuple[tuple[int, Fingerprint], ...] = ()
    """The versions before this one, oldest first, at most ``RECENT_VERSIONS``."""

    def to_json(self) -> list[Any]:
        recent = [[version, *rows.to_json()] for version, rows in self.recent]
        return [self.version, self.ts, *self.counts, *self.rows.to_json(), self.source, recent]

    @staticmethod
    def from_json(value: Any) -> AppliedWrite:
        version, ts, inserted, updated, deleted, ignored, rows, digits, source, recent = value
        if len(recent) > RECENT_VERSIONS:
            raise ValueError(f"{len(recent)} versions before the last one of a token")
        return AppliedWrite(
            integer(version, 0, MAX_VERSION),
            integer(ts),
            stored_counts((inserted, updated, deleted, ignored)),
            Fingerprint.from_json((rows, digits)),
            _stored_name(source, MAX_SOURCE_BYTES) if source is not None else None,
            tuple((integer(v, 0, MAX_VERSION), Fingerprint.from_json((r, d))) for v, r, d in recent),
        )


def stored_counts(value: Any) -> Counts:
    inserted, updated, deleted, ignored = map(integer, value)
    return inserted, updated, deleted, ignored


def stored_app_id(value: Any) -> str:
    """The name of a writer as a file has it; raises one of ``stored.BROKEN``."""
    return _stored_name(value, MAX_APP_ID_BYTES)


def _stored_name(value: Any, most_bytes: int) -> str:
    name = text(value)
    if not 1 <= len(name.encode()) <= most_bytes:
        raise ValueError(f"a name of {len(name.encode())} bytes; there are 1 to {most_bytes}")
    return name


def outdated(
    tokens: Mapping[str, AppliedWrite], through: int, now_us: int, retention_s: float | None, *, more: int = 0
) -> dict[str, AppliedWrite]:
    """The tokens that a table drops: after that a repetition of these writes would be applied again.

    Those older than ``retention_s`` go, and where there are more than ``MAX_TOKENS``, with ``more`` that are
    to come, the oldest of those that are not young.  None goes whose record lies after ``through``: replay
    would bring it back (protocol K4).
    """

    def older_than(seconds: float) -> dict[str, AppliedWrite]:
        oldest = hybrid(max(0, now_us - int(seconds * 1e6)))
        return {app_id: t for app_id, t in tokens.items() if t.ts < oldest and t.ts <= through}

    gone = {} if retention_s is None else older_than(retention_s)
    if len(tokens) - len(gone) + more > MAX_TOKENS:
        old = sorted(older_than(YOUNG_S).items(), key=lambda item: item[1].ts)
        kept = MAX_TOKENS - min(TOKENS_DROPPED, MAX_TOKENS // 2)
        left = [item for item in old if item[0] not in gone]
        gone |= dict(left[: len(tokens) - len(gone) - kept])
    return gone


@dataclass(frozen=True, slots=True)
class Txn:
    """A write that names itself.  Picklable."""

    app_id: str
    version: int
    source: str | None = None
    """As ``AppliedWrite.source``."""
    on_repeat: str = CHECK
    """"check": a repetition must have the rows that were applied.  "skip": its rows are not looked at."""
    rows: Fingerprint | None = None
    """Of the rows that the write gives; None: not known yet."""

    def of(self, rows: Fingerprint) -> Txn:
        return replace(self, rows=rows)

    def to_json(self) -> list[Any]:
        """As records have it: what replay needs to know the write again."""
        assert self.rows is not None, "a write is recorded when its rows are known"
        return [self.app_id, self.version, *self.rows.to_json(), self.source]

    @staticmethod
    def from_json(value: Any) -> Txn:
        """Raises one of ``stored.BROKEN`` for what ``to_json`` never writes."""
        app_id, version, rows, digits, source = value
        return Txn(
            stored_app_id(app_id),
            integer(version, 0, MAX_VERSION),
            _stored_name(source, MAX_SOURCE_BYTES) if source is not None else None,
            rows=Fingerprint.from_json((rows, digits)),
        )

    def applied(self, known: AppliedWrite | None, ts: int, counts: Counts) -> AppliedWrite:
        """What a table keeps of this write; ``known``: what it kept of the same writer until now."""
        assert self.rows is not None, "a write is applied when its rows are known"
        if known is None:
            return AppliedWrite(self.version, ts, counts, self.rows, self.source)
        source = known.source if self.source is None else self.source
        before: tuple[tuple[int, Fingerprint], ...] = ()
        if source == known.source or known.source is None:  # else its versions are another query's
            before = (*known.recent, (known.version, known.rows))[-RECENT_VERSIONS:]
        return AppliedWrite(self.version, ts, counts, self.rows, source, before)

    def refused(self, known: AppliedWrite) -> int | None:
        """Of a repetition: how many of the rows that were given then are in none of the counts.

        None: not known, of an earlier version than the last, whose counts are not kept, and of a write by
        predicate, which has no rows of its own.
        """
        if self.version != known.version or (known.rows.rows == 0 and known.rows != NO_ROWS):
            return None
        # More in the counts than were given: an overwrite, which also counts what it deletes.
        return max(0, known.rows.rows - sum(known.counts))

    def repeats(self, known: AppliedWrite | None, path: str) -> Counts | None:
        """The counts with which a repetition is answered; None: the write is a new one.

        With ``rows`` None, of a write whose rows are still to come, None says no more than that it is
        not known to be wrong.

        Raises
        ------
        TokenMismatch
            By ``on_repeat="check"`` it is not proven to be a repetition, and yet it is no new write.
        """
        if known is None:
            return None
        if self.on_repeat == SKIP:
            return _skipped(self, known)
        if self.source is not None and known.source not in (None, self.source):
            raise self._mismatch(
                f"{path} knows {self.app_id!r} as the name of the writes of {known.source}, and this is one "
                f"of {self.source}, another source: a query with a new checkpoint, or another query.",
                None,
            )
        if self.version > known.version:
            return None
        stored = known.rows if self.version == known.version else dict(known.recent).get(self.version)
        if stored is None:
            raise self._mismatch(
                f"version {self.version} of {self.app_id!r} comes after version {known.version} was applied "
                f"to {path}, and is not among the last {RECENT_VERSIONS} before it: whether its rows are "
                "there cannot be told. The checkpoint was lost or set back, or the version was left out.",
                None,
            )
        if self.rows is None:
            return None
        if self.rows != stored:
            what = f"rows: {stored.rows:,} then, {self.rows.rows:,} now"
            if stored.rows == self.rows.rows:
                what = "as many rows, not the same ones" if stored.rows else "not the same one"
            raise self._mismatch(
                f"version {self.version} of {self.app_id!r} was applied to {path} by another write ({what}): "
                "the checkpoint was lost or set back, or the rows differ from run to run.",
                stored.rows,
            )
        return _skipped(self, known)

    def _mismatch(self, told: str, stored_rows: int | None) -> TokenMismatch:
        return TokenMismatch(
            f"{told} Nothing was applied. Write under a new name (app_id, txnAppId) to have the rows "
            'applied; on_repeat="skip" (option onRepeat) takes every version up to the last one for done, '
            "whatever its rows, and what is new among them is not written.",
            self.app_id,
            self.version,
            stored_rows,
            None if self.rows is None else self.rows.rows,
        )


def _skipped(txn: Txn, known: AppliedWrite) -> Counts | None:
    if txn.version > known.version:
        return None
    return known.counts if txn.version == known.version else (0, 0, 0, 0)


def check_txn(txn: object, on_repeat: object = CHECK) -> Txn | None:
    """What a caller says of a write: (app_id, version), or with the id of its source as a third member."""
    if on_repeat not in ON_REPEAT:
        raise InvalidArgument(
            'on_repeat is "check" (a repeated version must have the same rows) or "skip" (it is taken for '
            f"done), not {on_repeat!r}"
        )
    if txn is None:
        if on_repeat != CHECK:
            raise InvalidArgument('on_repeat="skip" is for writes with txn=(app_id, version)')
        return None
    if isinstance(txn, Txn):
        return txn
    if not isinstance(txn, tuple | list) or len(txn) not in (2, 3):
        raise InvalidArgument(_shape(txn))
    app_id, version = txn[0], txn[1]
    source = txn[2] if len(txn) == 3 else None
    if not isinstance(app_id, str) or not app_id or isinstance(version, bool) or not isinstance(version, int):
        raise InvalidArgument(_shape(txn))
    if not 0 <= version < MAX_VERSION or not (source is None or (isinstance(source, str) and source)):
        raise InvalidArgument(_shape(txn))
    _check_bytes("app_id", app_id, MAX_APP_ID_BYTES)
    if source is not None:
        _check_bytes("source", source, MAX_SOURCE_BYTES)
    assert isinstance(on_repeat, str)
    return Txn(app_id, version, source, on_repeat)


def _shape(txn: object) -> str:
    return (
        "txn is (app_id, version) or (app_id, version, source): a name, a whole number from 0 to 2**63 - 1, "
        f"and the id of what the rows come from, not {shown(txn, 200)}"
    )


def _check_bytes(what: str, name: str, most: int) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"txn: {name!r:.200} is no Unicode text") from None
    if size > most:
        raise InvalidArgument(f"txn: {what} has {size:,} bytes of UTF-8; {most:,} are the most: {name!r:.60}")


__all__ = [
    "CHECK",
    "MAX_APP_ID_BYTES",
    "MAX_SOURCE_BYTES",
    "MAX_TOKENS",
    "ON_REPEAT",
    "RECENT_VERSIONS",
    "SKIP",
    "TOKENS_DROPPED",
    "YOUNG_S",
    "AppliedWrite",
    "Counts",
    "Txn",
    "check_txn",
    "outdated",
    "stored_app_id",
    "stored_counts",
]
