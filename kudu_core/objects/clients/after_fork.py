"""What a fork leaves of a client's threads: nothing.

The clients have threads of their own (tokio).  In the child of a process that has asked a store for something
they are gone, and the client would wait for them for ever, also a new one.
"""

from __future__ import annotations

import os

from kudu_core.errors import NotSupported


class ClientThreads:
    """Whether this process has asked a store for something, and whether it is the child of one that had."""

    used = False
    dead = False

    @classmethod
    def forked(cls) -> None:
        cls.dead = cls.used


os.register_at_fork(after_in_child=ClientThreads.forked)


def check_process() -> None:
    """``NotSupported`` in a child whose parent has made a request before the fork."""
    if ClientThreads.dead:
        raise NotSupported(
            "this process was forked from one that has used an object store, and its client does not survive "
            'that: start the child with "spawn"'
        )


def about_to_ask() -> None:
    """``check_process``, and from now on no child of a fork can ask."""
    check_process()
    ClientThreads.used = True


__all__ = ["ClientThreads", "about_to_ask", "check_process"]
