"""Requests to the stand-in of HDFS, and what happens before or after one of them; for tests."""

from __future__ import annotations

import os
from collections.abc import Callable

from kudu_core.objects.clients.hdfs_requests import HdfsRequests
from kudu_core.objects.urls import parse
from tests.support.objects.local_hdfs import LocalHdfs

LOST = OSError("Connection reset by peer (os error 104)")


def opened(hdfs: LocalHdfs, **how: float) -> HdfsRequests:
    return HdfsRequests(parse("hdfs://stand-in:8020/t"), lambda: hdfs, **how)


def once(name: str, act: Callable[[], object], where: str = "") -> Callable[..., None]:
    """A hook that acts at the first request of a name, of a path with ``where`` in it."""
    left = [act]

    def hook(asked: str, *paths: str) -> None:
        if asked == name and where in paths[-1] and left:
            left.pop()()

    return hook


def failing(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def replaced(requests: HdfsRequests, times: int, path: str = "a") -> bytes:
    """The object after so many replacements."""
    data, version = requests.get(path, None)
    for n in range(times):
        data = os.urandom(16) + b"%d" % n
        version = requests.put(path, data, version)
    return data


__all__ = ["LOST", "failing", "once", "opened", "replaced"]
