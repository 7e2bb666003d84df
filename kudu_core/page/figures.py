"""Numbers as people read them."""

from __future__ import annotations

from kudu_core.common.run.clock import time_of

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def in_bytes(count: float) -> str:
    """Such as ``1.5 MiB``."""
    unit = 0
    while abs(count) >= 1023.5 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 or abs(count) >= 99.5 else f"{count:.1f} {_UNITS[unit]}"


def in_seconds(seconds: float | None) -> str:
    """Such as ``1.5 s`` or ``2.0 days``; None is for ever."""
    if seconds is None:
        return "for ever"
    if seconds < 0:
        return f"-{in_seconds(-seconds)}"
    for least, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= least:
            return f"{seconds / least:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def in_count(count: float) -> str:
    """Such as ``1,234``."""
    return f"{count:,.0f}" if count == int(count) else f"{count:,.2f}"


def counted(count: int, of: str) -> str:
    """Such as ``1 tablet`` and ``1,234 tablets``."""
    return f"{count:,} {of}{'' if count == 1 else 's'}"


def in_share(share: float) -> str:
    """Such as ``12 %``."""
    return "0 %" if share == 0 else "< 0.1 %" if share < 0.001 else f"{share:.1%}".replace("%", " %")


def in_rowset(rowset_id: int) -> str:
    """A rowset's id as the epoch of the writer that made it, and its number there: ``2-17``."""
    return f"{rowset_id >> 32}-{rowset_id & 0xFFFF_FFFF}"


def in_time(timestamp: int) -> str:
    """A hybrid time to the second, in UTC."""
    return of_micros(timestamp >> 12)


def of_micros(micros: int) -> str:
    """Microseconds since 1970 to the second, in UTC."""
    return time_of(micros << 12).partition(".")[0].removesuffix("Z").replace("T", " ")


__all__ = ["counted", "in_bytes", "in_count", "in_rowset", "in_seconds", "in_share", "in_time", "of_micros"]
