"""Counts of requests and bytes, by kind."""

from __future__ import annotations

from kudu_core.common.run.locks import mutex

KINDS = ("get", "put", "delete", "list")


class Tally:
    """Thread safe.  Requests are those that the client has sent, answered or not."""

    def __init__(self) -> None:
        self._mutex = mutex()
        """Guards ``_numbers``; held for a moment."""
        self._numbers = dict.fromkeys(
            [*(f"requests_{kind}" for kind in KINDS), "bytes_get", "bytes_put", "repeated"], 0
        )

    def sent(self, kind: str, requests: int = 1) -> None:
        with self._mutex:
            self._numbers[f"requests_{kind}"] += requests

    def moved(self, kind: str, n_bytes: int) -> None:
        with self._mutex:
            self._numbers[f"bytes_{kind}"] += n_bytes

    def repeated(self) -> None:
        with self._mutex:
            self._numbers["repeated"] += 1

    def now(self) -> dict[str, int]:
        """``requests_get``, ``requests_put``, ``requests_delete``, ``requests_list``; ``bytes_get`` and
        ``bytes_put`` of bodies; ``repeated``, how many of the requests were made because others had no
        answer, or one that asks for patience."""
        with self._mutex:
            return dict(self._numbers)


__all__ = ["Tally"]
