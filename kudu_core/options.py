"""How a table behaves: frozen values, each with its unit, range and default.

Given to ``create_table`` they are stored with the table; given to ``open_table`` they hold for that
handle.  Only what was named counts there: ``Options`` remember which of them were given, so that one that
is given as the class's default overrides another that is stored.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kudu_core.errors import InvalidArgument, shown

_KIB = 1 << 10
_MIB = 1 << 20
_GIB = 1 << 30
_YEAR_S = 365 * 86_400

# Shares of the memory that a process may use.  Small ones: one process has many tables open, and one machine
# many processes, such as the workers of Spark.
_MEMORY_DIVISOR = 8
_LEAST_MEMORY, _MOST_MEMORY = 128 * _MIB, 4 * _GIB
_CACHE_DIVISOR = 4  # of the memory limit
_MOST_CACHE = 512 * _MIB

# field: (lowest, highest), both allowed.
_RANGES: dict[str, tuple[float, float]] = {
    "group_interval_s": (0.001, 60),
    "maintenance_threads": (1, 64),
    "memory_limit_bytes": (16 * _MIB, 1 << 50),
    "page_cache_bytes": (0, 1 << 50),
    "flush_threshold_bytes": (64 * _KIB, 64 * _GIB),
    "flush_age_s": (0, _YEAR_S),
    "rowset_target_bytes": (64 * _KIB, 4 * _GIB),
    "compaction_budget_bytes": (_MIB, 1 << 50),
    "bloom_false_positive_rate": (0.0001, 0.5),
    "history_retention_s": (0, 1000 * _YEAR_S),
    "token_retention_s": (0, 1000 * _YEAR_S),
    "ingest_threshold_rows": (1, 1 << 31),
    "ingest_threshold_bytes": (64 * _KIB, 64 * _GIB),
    "scan_threads": (1, 1024),
    "file_grace_s": (0, _YEAR_S),
    "staging_grace_s": (0, _YEAR_S),
    "lost_grace_s": (0, _YEAR_S),
    "lock_timeout_s": (0, _YEAR_S),
    "slow_operation_s": (0, _YEAR_S),
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "durability": ("sync", "group", "none"),
    "maintenance": ("background", "manual"),
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Options:
    """Options of a table; ``InvalidArgument`` names a field that is out of range.

    Two are equal if all their values are, whichever of them were given.

    >>> kc.Options(durability="group", group_interval_s=0.1)
    Options(durability='group', group_interval_s=0.1)
    """

    given: frozenset[str] = field(default=frozenset(), compare=False)
    """Names of the options that were given.  The others have their defaults, and override nothing.  Not to be
    passed: it is the first field, so that ``dataclasses.replace`` passes it after what it changes and before
    what it copies, which is how the two are told apart."""

    durability: Literal["sync", "group", "none"] = "sync"
    """"sync": a write returns after its fsync.  "group": within ``group_interval_s`` of it, so a
    crash may lose that much, never a part of a batch.  "none": when the system likes."""

    group_interval_s: float = 0.05
    """Seconds, 0.001 to 60: how often the log is fsynced with "group"."""

    maintenance: Literal["background", "manual"] = "background"
    """"background": flushes, compactions, merges and collection of what nobody needs run on their own; a
    merge once looks into several rowsets have cost as much as it will, sixteen lie over each other, or
    nothing was written for five seconds.  "manual": only when called (``flush``, ``compact``, ``gc``,
    ``maintain``)."""

    maintenance_threads: int = 1
    """1 to 64: compaction threads, beside the one for flushes."""

    memory_limit_bytes: int | None = None
    """Bytes, 16 MiB to 1 PiB: memory stores, batches under way and the page cache together; None = an eighth
    of the memory that the process may use, but 128 MiB to 4 GiB.  From half of it on the largest store is
    flushed and writers are slowed, ever more, before it is reached; ``MemoryLimit`` is for a batch that alone
    does not fit."""

    page_cache_bytes: int | None = None
    """Bytes, 0 to 1 PiB: pages kept in memory as they are stored; None = a quarter of ``memory_limit_bytes``,
    but at most 512 MiB.  Of a table that is written it is less while memory stores need the room, down to an
    eighth of ``memory_limit_bytes``."""

    flush_threshold_bytes: int = 64 * _MIB
    """Bytes, 64 KiB to 64 GiB: a memory store of this size is flushed."""

    flush_age_s: float = 120.0
    """Seconds, 0 to a year: a memory store of this age is flushed, however small."""

    rowset_target_bytes: int = 32 * _MIB
    """Bytes, 64 KiB to 4 GiB: where the writer of rowsets begins the next one."""

    compaction_budget_bytes: int = 256 * _MIB
    """Bytes, 1 MiB to 1 PiB: how much one merging compaction in the background reads.  A rowset above it is
    never merged: at least twice ``rowset_target_bytes``, or nothing is."""

    bloom_false_positive_rate: float = 0.005
    """0.0001 to 0.5: share of absent keys that a rowset's bloom lets through."""

    history_retention_s: float | None = 86_400.0
    """Seconds, 0 to 1,000 years: how long past states and changes can be read; None = for ever, 0 = only
    what a pinned snapshot holds."""

    token_retention_s: float | None = 90 * 86_400.0
    """Seconds, 0 to 1,000 years: how long the table knows the last write of a writer that names its writes
    (``txn``); None = for ever.  A repetition after that is applied again."""

    ingest_threshold_rows: int = 100_000
    """1 to 2**31: a call of so many rows is written straight to files."""

    ingest_threshold_bytes: int = 16 * _MIB
    """Bytes, 64 KiB to 64 GiB: a call of so many bytes is written straight to files."""

    scan_threads: int | None = None
    """1 to 1,024: threads of a scan; None = the cores that the process may use."""

    file_grace_s: float = 60.0
    """Seconds, 0 to a year: how long a file that nothing names stays while somebody has the table open for
    reading, in this process or another; without readers such files go at once."""

    staging_grace_s: float = 86_400.0
    """Seconds, 0 to a year: how long an abandoned staging directory stays, and it is known of a distributed
    write that it was committed.  Ten minutes at least: somebody may be at work there."""

    lost_grace_s: float = 259_200.0
    """Seconds, 0 to a year: how long what an open for writing has found and nothing names stays in ``lost/``,
    in case that what should name it is damaged."""

    lock_timeout_s: float = 60.0
    """Seconds, 0 to a year: how long a distributed commit waits for the writer lease."""

    slow_operation_s: float | None = 1.0
    """Seconds, 0 to a year: a call or a work of maintenance that takes longer is told to the logger
    ``kudu_core.slow``; None = none is."""

    if not TYPE_CHECKING:  # for a type checker the generated signature stands

        def __init__(self, **named: Any) -> None:
            _check_names(name for name in named if name != "given")
            names = list(named)
            if "given" in named:
                names = [*names[: names.index("given")], *_known(named["given"])]
            for name, default in DEFAULTS.items():
                value = _checked(name, named.get(name, default))
                object.__setattr__(self, name, value)
                if value != default:
                    names.append(name)
            object.__setattr__(self, "given", frozenset(names))

    def __repr__(self) -> str:
        given = (f"{name}={getattr(self, name)!r}" for name in NAMES if name in self.given)
        return f"Options({', '.join(given)})"

    def replace(self, **changes: Any) -> Options:
        """The same options but for these, which are given from now on; ``InvalidArgument`` for an unknown
        name or a bad value.

        >>> kc.Options(scan_threads=2).replace(durability="group")
        Options(durability='group', scan_threads=2)
        """
        _check_names(changes)
        return Options(**{name: getattr(self, name) for name in self.given} | changes)

    def overridden(self, other: Options | Mapping[str, Any] | None) -> Options:
        """These options with what is given by ``other``.

        >>> kc.Options(scan_threads=2).overridden({"scan_threads": 4})
        Options(scan_threads=4)
        """
        return self if other is None else self.replace(**_given_by(other))

    def in_force(self, memory_bytes: int) -> Options:
        """These options with numbers where None means what the machine has: ``memory_bytes``, what the
        process may use.  Which options were given stays as it is.

        >>> kc.Options(page_cache_bytes=0).in_force(8 << 30).memory_limit_bytes
        1073741824
        """
        out = Options(given=self.given, **self.to_json())
        share = min(max(memory_bytes // _MEMORY_DIVISOR, _LEAST_MEMORY), _MOST_MEMORY)
        limit = share if self.memory_limit_bytes is None else self.memory_limit_bytes
        object.__setattr__(out, "memory_limit_bytes", limit)
        object.__setattr__(out, "page_cache_bytes", out.cache_bytes)
        object.__setattr__(out, "given", self.given)
        return out

    @property
    def memory_bytes(self) -> int:
        """``memory_limit_bytes`` as a number, where no table is open that follows the machine: 1 GiB.

        >>> kc.Options(memory_limit_bytes=64 << 20).memory_bytes
        67108864
        """
        return _GIB if self.memory_limit_bytes is None else self.memory_limit_bytes

    @property
    def cache_bytes(self) -> int:
        """``page_cache_bytes`` as a number.

        >>> kc.Options(memory_limit_bytes=64 << 20).cache_bytes
        16777216
        """
        if self.page_cache_bytes is None:
            return min(self.memory_bytes // _CACHE_DIVISOR, _MOST_CACHE)
        return self.page_cache_bytes

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in NAMES}

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Options:
        """Options from ``to_json`` or from any mapping, all of whose members are given; what is left out has
        its default.

        >>> kc.Options.from_json({"scan_threads": 2}).scan_threads
        2
        """
        return Options().overridden(stored)


DEFAULTS: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(Options) if f.name != "given"}
NAMES = tuple(DEFAULTS)
_TYPES = {f.name: str(f.type) for f in dataclasses.fields(Options)}
# For ``help``: what is passed, and what is taken where it is not.
Options.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_TYPES[name])
        for name, default in DEFAULTS.items()
    ]
)


def _given_by(other: Any) -> dict[str, Any]:
    """What was named: of a mapping all."""
    if isinstance(other, Mapping):
        if "given" not in other:
            _check_names(other)
            return dict(other)
        other = Options(**other)  # of ``dataclasses.asdict``
    if not isinstance(other, Options):
        raise InvalidArgument(f"options are Options, or a mapping of names to values, not {shown(other)}")
    return {name: getattr(other, name) for name in other.given}


def _check_names(given: Iterable[Any]) -> None:
    for name in given:
        if name not in NAMES:
            import difflib  # only for a mistake

            close = difflib.get_close_matches(str(name), NAMES, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(NAMES)}"
            raise InvalidArgument(f"no option {shown(name)}{hint}")


def _known(given: Any) -> Iterable[str]:
    if not isinstance(given, frozenset) or not given <= DEFAULTS.keys():
        raise InvalidArgument(f"given is not to be passed: it holds names of options, not {shown(given)}")
    return given


def _checked(name: str, value: Any) -> Any:
    """The value as the field's own type, in its range."""
    return _checked_choice(name, value) if name in _CHOICES else _checked_number(name, _TYPES[name], value)


def _checked_choice(name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in _CHOICES[name]:
        choices = " or ".join(repr(choice) for choice in _CHOICES[name])
        raise InvalidArgument(f"{name} is {choices}, not {shown(value)}")
    return str(value)


def _checked_number(name: str, annotation: str, value: Any) -> int | float | None:
    """The value as the field's own type.  ``annotation`` is text: "int", "float", "int | None"."""
    if value is None and "None" in annotation:
        return None
    low, high = _RANGES[name]
    whole = annotation.startswith("int")
    number_type = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, number_type) or value != value:
        kind = "a whole number" if whole else "a number"
        raise InvalidArgument(f"{name} is {kind}, not {shown(value)}")
    if not low <= value <= high:
        raise InvalidArgument(f"{name} is {shown(value)}; it must be {low:,} to {high:,}")
    return int(value) if whole else float(value)
