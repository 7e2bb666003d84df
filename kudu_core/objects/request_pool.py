"""Threads for requests side by side, shared by all open tables of a process."""

from __future__ import annotations

from typing import Final

from kudu_core.common.run.pool import Pool

AT_ONCE: Final = 32
"""Requests of a process that are under way: of 2 MiB each they hold 64."""

_pools: list[Pool] = []
"""One, from its first use on.  Two threads at once may make one each; a pool without tasks has no thread."""


def request_pool() -> Pool:
    """That of this process, also in the child of a fork.  Nobody closes it."""
    if not _pools or not _pools[0].is_of_this_process:
        _pools[:] = [Pool(AT_ONCE, "kudu-requests")]
    return _pools[0]


__all__ = ["request_pool"]
