"""A service over one table: several processes answer, one of them writes, all of them read.

    pip install fastapi uvicorn httpx
    python examples/service.py [--table stock] [--port 8000] [--workers 3] [--refresh-s 0.5]

    curl -X PUT localhost:8000/items/bolt --json '{"pieces": 7, "price": "0.15"}'
    curl localhost:8000/items/bolt
    curl -G localhost:8000/items --data-urlencode 'where=[["pieces", "<", 10]]' -d limit=20
    curl -G localhost:8000/items/bolt -d at=2026-01-05T12:00:00Z

Who writes.  The worker that gets the table's lease (``open_table(mode="auto")``) does, and listens also on a
socket beside the table.  A worker that may only read hands each write on to that socket, so a client need
not know who writes.  Where nobody listens there, the writer has gone: whoever notices opens the table for
writing itself, and is the writer from then on.  All workers are on one machine.

What an answer means.  200: it is on disk.  503: the writer went while it had the request, or a new one is
not ready; it may have been applied or not.  Every write here says what is to be, not what to add, so it
may simply be sent again.

What a read shows.  The writer shows all that was acknowledged, a reader the state of ``--refresh-s`` ago or
a newer one; each says in ``X-Timestamp`` which, and never goes back.  Who must see a certain write, through
whatever worker, sends its timestamp: ``?after=...``.  ``?at=...`` reads a past state.  Timestamps are text:
they have more digits than the numbers of JavaScript.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import httpx
import pyarrow as pa
import uvicorn
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict

import kudu_core as kc

SCHEMA = pa.schema(
    [
        ("item", pa.string()),
        ("place", pa.string()),
        ("pieces", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("counted_at", pa.timestamp("us", "UTC")),
    ]
)
OPTIONS = kc.Options(history_retention_s=86_400)  # how far back ?at= reaches

# Workers are started anew, with nothing but the environment.
TABLE = os.environ.get("SERVICE_TABLE", "stock")
REFRESH_S = float(os.environ.get("SERVICE_REFRESH_S", "0.5"))
SOCKET = Path(f"{TABLE}.writer")
WAIT_S = 5.0
"""How long a write waits for one of the workers to become the writer."""


# ---- who writes ----


class Behind(uvicorn.Server):
    """The server of the socket beside the table.  Signals are for the one that clients reach."""

    def capture_signals(self) -> Any:
        return nullcontext()


class Worker:
    """One process of the service: its table, and where it writes, its socket for the others."""

    table: kc.Table

    def __init__(self) -> None:
        self._becoming = asyncio.Lock()
        self._behind: tuple[Behind, asyncio.Task[None]] | None = None
        # No connection is kept: one that the writer closes just then would look like a lost request.
        once = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(SOCKET), limits=once), timeout=30
        )

    @property
    def writes(self) -> bool:
        return self.table.mode == "rw"

    async def begin(self) -> None:
        self.table = await asyncio.to_thread(kc.open_table, TABLE, "auto", refresh_s=REFRESH_S)
        if self.writes:
            self._listen()

    async def end(self) -> None:
        """In this order: while it holds the lease, the socket is nobody else's."""
        await self._client.aclose()
        if self._behind is not None:
            server, serving = self._behind
            server.should_exit = True
            await serving
            SOCKET.unlink(missing_ok=True)
        await asyncio.to_thread(self.table.close)

    def _listen(self) -> None:
        SOCKET.unlink(missing_ok=True)  # of a writer that was killed: the lease says that it is gone
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(SOCKET))
        listener.listen(128)
        server = Behind(uvicorn.Config(app, lifespan="off", log_config=None))
        self._behind = server, asyncio.create_task(server.serve([listener]))

    async def _becomes_writer(self) -> bool:
        async with self._becoming:
            if not self.writes:
                try:
                    # The reader in its place closes itself when the last read through it is done.
                    self.table = await asyncio.to_thread(kc.open_table, TABLE, "rw")
                except kc.Locked:
                    return False
                self._listen()
            return True

    async def by_writer(self, request: Request) -> Response | None:
        """The writer's answer; None: this process is the writer now."""
        url = request.url.replace(scheme="http", netloc="writer")
        headers = {"content-type": request.headers.get("content-type", "application/json")}
        body = await request.body()
        until = asyncio.get_running_loop().time() + WAIT_S
        while True:
            try:
                answer = await self._client.request(request.method, str(url), content=body, headers=headers)
            except httpx.ConnectError:  # nothing was sent
                if await self._becomes_writer():
                    return None
                if asyncio.get_running_loop().time() > until:
                    return not_now("no worker has become the writer yet")
                await asyncio.sleep(0.02)
            except httpx.TransportError:
                return not_now("the writer has gone: this may have been applied or not")
            else:
                kept = {name: answer.headers[name] for name in KEPT if name in answer.headers}
                return Response(answer.content, answer.status_code, kept)


KEPT = ("content-type", "retry-after")


def not_now(why: str) -> Response:
    told = {"error": "unavailable", "detail": f"{why}; send it again"}
    return JSONResponse(told, 503, {"Retry-After": "1"})


worker: Worker


@asynccontextmanager
async def life(_: FastAPI) -> AsyncIterator[None]:
    global worker  # noqa: PLW0603  a process is one worker
    worker = Worker()
    await worker.begin()
    try:
        yield
    finally:
        await worker.end()


app = FastAPI(title="stock", lifespan=life)


@app.middleware("http")
async def hand_on(request: Request, here: Callable[[Request], Awaitable[Response]]) -> Response:
    """Reads are done here; writes too, or by the writer."""
    if request.method in ("GET", "HEAD", "OPTIONS") or worker.writes:
        return await here(request)
    return await worker.by_writer(request) or await here(request)


# ---- errors ----

STATUS: dict[type[kc.KuduError], int] = {
    kc.InvalidArgument: 400,
    kc.SnapshotInFuture: 400,
    kc.RowErrors: 409,
    kc.SnapshotTooOld: 410,
    kc.MemoryLimit: 413,
    kc.NotSupported: 422,
}


@app.exception_handler(kc.KuduError)
async def refused(_: Request, error: kc.KuduError) -> Response:
    if isinstance(error, kc.Fenced | kc.Poisoned):
        # This handle writes no more.  The process ends in good order, and is started again.
        signal.raise_signal(signal.SIGTERM)
        return not_now(str(error))
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    return JSONResponse({"error": type(error).__name__, "detail": str(error)}, status)


# ---- writes ----


class Change(BaseModel):
    """What is set of an item: a field that is left out stays as it is, null sets null."""

    model_config = ConfigDict(extra="forbid")

    place: str | None = None
    pieces: int | None = None
    price: Decimal | None = None
    counted_at: AwareDatetime | None = None


class Item(Change):
    item: str

    def row(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class Written(BaseModel):
    timestamp: str
    inserted: int
    updated: int
    deleted: int


def written(result: kc.WriteResult) -> Written:
    return Written(
        timestamp=str(result.timestamp),
        inserted=result.inserted,
        updated=result.updated,
        deleted=result.deleted,
    )


# Functions without "async" run in threads, so writes that come together share an fsync.


@app.put("/items/{item}")
def put(item: str, change: Change) -> Written:
    return written(worker.table.upsert([{"item": item, **change.model_dump(exclude_unset=True)}]))


@app.post("/items")
def post(items: list[Item]) -> Written:
    """All of them, at one moment, or none."""
    return written(worker.table.upsert([item.row() for item in items]))


@app.delete("/items/{item}")
def delete(item: str) -> Written:
    """It is not there afterwards; whether it was, ``deleted`` says."""
    return written(worker.table.delete([item], on_missing="ignore"))


# ---- reads ----


def moment_of(text: str) -> int | datetime:
    """A timestamp, or a time in ISO 8601 with its zone."""
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise kc.InvalidArgument(f"{text!r} is neither a timestamp nor a time in ISO 8601") from error


@contextmanager
def state(response: Response, at: str | None, after: str | None) -> Iterator[kc.Snapshot]:
    """The state that a read is of: at ``at``, or the newest here, which has what was written by ``after``."""
    table = worker.table  # held until the read is done, also when a writer takes its place
    moment = None if at is None else moment_of(at)
    least = 0 if after is None else moment_of(after)
    if not isinstance(least, int):
        raise kc.InvalidArgument("after is the timestamp of a write")
    if table.timestamp < least:
        table.refresh()
        if table.timestamp < least:
            raise kc.SnapshotInFuture(f"no write has had the timestamp {after}")
    try:
        snapshot = table.snapshot(moment)
    except kc.SnapshotInFuture:
        table.refresh()
        snapshot = table.snapshot(moment)
    with snapshot:
        response.headers["X-Timestamp"] = str(snapshot.timestamp)
        response.headers["X-Worker"] = str(os.getpid())
        yield snapshot


def conditions(text: str) -> list[tuple[Any, ...]]:
    """``[["price", "<", "9.50"], ["place", "in", ["A1", "A2"]]]``: all of them hold.

    Text stands also for what JSON does not have: it becomes a value of the column's type.
    """

    def constant(column: object, value: Any) -> Any:
        if isinstance(value, list):
            return [constant(column, one) for one in value]
        if isinstance(value, str) and column in SCHEMA.names:
            return pa.scalar(value).cast(SCHEMA.field(column).type).as_py()
        return value

    try:
        wanted = json.loads(text, parse_float=Decimal)
        return [(column, op, constant(column, value)) for column, op, value in wanted]
    except (ValueError, TypeError) as error:
        raise kc.InvalidArgument(f"where is a list of [column, operator, value]: {error}") from error


At = Annotated[str | None, Query(description="a timestamp, or a time with its zone: the state of then")]
After = Annotated[str | None, Query(description="the timestamp of a write that the answer is to know of")]


@app.get("/items/{item}")
def get(item: str, response: Response, at: At = None, after: After = None) -> Item:
    with state(response, at, after) as snapshot:
        row = snapshot.get(item)
    if row is None:
        raise HTTPException(404, f"there is no {item!r}", dict(response.headers))
    return Item(**row)


@app.get("/items")
def find(
    response: Response,
    where: str = "[]",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    at: At = None,
    after: After = None,
) -> list[Item]:
    """The first ``limit`` items, in order of the key, for which all conditions hold."""
    with state(response, at, after) as snapshot:
        rows = snapshot.scan(where=conditions(where), limit=limit, order="key").to_pylist()
    return [Item(**row) for row in rows]


@app.get("/state")
def of_worker(response: Response) -> dict[str, Any]:
    """Of the one that happens to answer."""
    with state(response, None, None) as snapshot:
        items = snapshot.scan([]).count()
    return {"worker": os.getpid(), "mode": worker.table.mode, "items": items}


# ---- the service ----


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", type=Path, default=Path("stock"), help="is made where there is none")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--refresh-s", type=float, default=0.5, help="how old what a reader shows may be")
    arguments = parser.parse_args()

    table = str(arguments.table.absolute())
    kc.create_table(table, SCHEMA, "item", options=OPTIONS, exist_ok=True).close()
    os.environ.update(SERVICE_TABLE=table, SERVICE_REFRESH_S=str(arguments.refresh_s))
    uvicorn.run(
        "service:app",
        app_dir=str(Path(__file__).parent),
        host=arguments.host,
        port=arguments.port,
        workers=arguments.workers,
        access_log=False,
    )


if __name__ == "__main__":
    main()
