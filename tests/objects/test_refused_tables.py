"""A table in a store that refuses, by the real client over HTTP: each refusal is told as what it is, nothing
is lost, and the handle goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import kudu_core as kc
from tests.support.objects.memory import StepClock
from tests.support.objects.server import Reply, StoreServer, error
from tests.support.objects.tables import MANUAL, SCHEMA

REFUSALS: dict[str, tuple[Reply, type[kc.StoreError], str]] = {
    "expired credentials": (error(400, "ExpiredToken"), kc.StoreDenied, "they have expired"),
    "a wrong clock": (error(403, "RequestTimeTooSkewed"), kc.StoreDenied, "the clock of this machine"),
    "a bucket that is gone": (error(404, "NoSuchBucket"), kc.StoreError, "there is no bucket"),
    "another region": (error(301, "PermanentRedirect"), kc.StoreError, "in another region"),
    "throttling": (error(503, "SlowDown"), kc.StoreUnavailable, "503"),
    "a server that is down": (error(500, "InternalError"), kc.StoreUnavailable, "500"),
}
CALLS: dict[str, Callable[[kc.Table, kc.Table], object]] = {
    "write": lambda table, reader: table.upsert([{"k": 2, "v": 2}]),
    "flush": lambda table, reader: table.flush(),
    "refresh": lambda table, reader: reader.refresh(),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_table_in_a_store_that_refuses(server: StoreServer, refusal: str) -> None:
    url, options, clock = f"{server.url}/t", server.options(), StepClock()

    def opened(mode: str) -> kc.Table:
        return kc.open_table(url, mode, storage_options=options, _clock=clock)  # type: ignore[arg-type]

    with kc.create_table(url, SCHEMA, "k", options=MANUAL, storage_options=options, _clock=clock) as table:
        table.upsert([{"k": n, "v": n} for n in range(100)])
        table.flush()
    table, reader = opened("rw"), opened("r")
    table.upsert([{"k": 1, "v": 11}])
    reply, kind, told = REFUSALS[refusal]
    for name, call in CALLS.items():
        server.always = reply
        with pytest.raises(kc.StoreError, match=told) as raised:
            call(table, reader)
        assert type(raised.value) is kind, name
        assert table.get(1) == {"k": 1, "v": 11}, "what is in memory is read"
        for mode in ("r", "rw"):
            with pytest.raises(kind, match=told):
                opened(mode)
        server.always = None
    table.upsert([{"k": 3, "v": 33}])
    wanted = [{"k": n, "v": {1: 11, 3: 33}.get(n, n)} for n in range(100)]
    reader.refresh()
    for of in (table, reader):
        assert of.scan(order="key").to_table().to_pylist() == wanted
    table.flush()
    table.close()
    reader.close()
    with opened("rw") as again:
        assert again.scan(order="key").to_table().to_pylist() == wanted
