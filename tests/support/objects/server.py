"""A small HTTP server that speaks enough of S3, or of Google's XML API, for the real client; for tests.

Its objects are a ``MemoryObjectStore``'s.  What becomes of a request its rules say (``fates.py``), so that
the client meets every lost, late, repeated, torn or slow answer.  It checks who asks by name only (the access
key and the region in the signature's scope), and no signature.
"""

from __future__ import annotations

import http.server
import re
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from kudu_core.objects.api import ALWAYS, Condition, Unmet
from tests.support.objects.fates import Fates, Op, Rule
from tests.support.objects.memory import MemoryObjectStore, Object

BUCKET, KEY, REGION = "bucket", "AKTEST", "us-test-1"
OPS: dict[str, Op] = {"GET": "get", "HEAD": "get", "PUT": "put", "DELETE": "delete", "POST": "delete"}
_SCOPE = re.compile(r"Credential=([^/,]+)/\d+/([^/]+)/s3/")


class Reply(NamedTuple):
    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def error(status: int, code: str, message: str = "") -> Reply:
    text = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    return Reply(status, b'<?xml version="1.0" encoding="UTF-8"?>' + text.encode())


NO_KEY = error(404, "NoSuchKey", "The specified key does not exist.")
CONFLICT = error(409, "ConditionalRequestConflict", "The conditional request conflicts with another.")
UNMET = error(412, "PreconditionFailed", "At least one of the preconditions you specified did not hold")
BUSY = error(503, "SlowDown", "Please reduce your request rate.")
BROKEN = error(500, "InternalError", "We encountered an internal error. Please try again.")


class StoreServer:
    """See the module.  Use it with ``with``.

    ``always``: this answer to everything, None for the objects'.  ``page``: most names in one listing.
    ``seen`` has "METHOD path" of each request.
    """

    def __init__(self, speaks: Literal["s3", "gcs"] = "s3", rules: Iterable[Rule] = ()) -> None:
        self.speaks = speaks
        self.memory = MemoryObjectStore(versions="etag" if speaks == "s3" else "generation", now_s=time.time)
        self.fates = Fates(rules)
        self.always: Reply | None = None
        self.page = 1000
        self.seen: list[str] = []
        self._late: list[tuple[int, Callable[[], Reply]]] = []
        self._mutex = threading.Lock()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.store = self

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def url(self) -> str:
        return f"{'s3' if self.speaks == 's3' else 'gs'}://{BUCKET}"

    def options(self, **more: object) -> dict[str, Any]:
        """``storage_options`` for it."""
        if self.speaks == "gcs":
            account = (
                f'{{"gcs_base_url": "{self.endpoint}", "disable_oauth": true, "client_email": "", '
                '"private_key": "", "private_key_id": ""}'
            )
            return {"service_account_key": account, **more}
        known = {"endpoint": self.endpoint, "access_key_id": KEY, "secret_access_key": "no secret"}
        return {**known, "region": REGION, **more}

    def __enter__(self) -> StoreServer:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def land_late(self) -> int:
        """Apply what is still under way; how much that was."""
        with self._mutex:
            late, self._late = self._late, []
        for _, request in late:
            request()
        return len(late)

    def land_due(self) -> None:
        now = len(self.fates.log)
        with self._mutex:
            due = [request for at, request in self._late if at <= now]
            self._late = [(at, request) for at, request in self._late if at > now]
        for request in due:
            request()

    def put_off(self, request: Callable[[], Reply], after: int) -> None:
        with self._mutex:
            self._late.append((len(self.fates.log) + after, request))


class _Http(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    store: StoreServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are part of the tests."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def log_message(self, format: str, *args: object) -> None:
        pass

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _handle(self) -> None:
        store = self.server.store
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        store.seen.append(f"{self.command} {parts.path}")
        denied = store.always or self._denied(bucket)
        if denied is not None:
            return self._send(denied)
        op: Op = "list" if self.command == "GET" and not key else OPS[self.command]
        path = query.get("prefix", "").rstrip("/") if op == "list" else key or _keys_in(body)[0]
        rule = store.fates.of(op, path)
        store.land_due()
        headers = {name.lower(): value for name, value in self.headers.items()}

        def apply() -> Reply:
            return _applied(store, self.command, key, query, headers, body)

        return self._meet(rule, op, path, apply)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = _handle

    def _denied(self, bucket: str) -> Reply | None:
        if self.server.store.speaks == "s3":
            scope = _SCOPE.search(self.headers.get("Authorization", ""))
            if scope is None or scope[1] != KEY:
                return error(403, "InvalidAccessKeyId", "The Access Key Id does not exist in our records.")
            if scope[2] != REGION:
                wrong = f"The authorization header is malformed; the region '{scope[2]}' is wrong; expecting"
                return error(400, "AuthorizationHeaderMalformed", f"{wrong} '{REGION}'")
        return None if bucket == BUCKET else error(404, "NoSuchBucket", "The specified bucket does not exist")

    # -- fates ---------------------------------------------------------------------------------------------

    def _meet(self, rule: Rule | None, op: Op, path: str, apply: Callable[[], Reply]) -> None:
        fate = None if rule is None else rule.fate
        if rule is None:
            return self._send(apply())
        if fate == "refused":
            return self._lose(rule)
        if fate == "busy":
            return self._send(BUSY)
        if fate == "conflict":
            return self._send(CONFLICT if op == "put" else BUSY)
        if fate == "late":
            self.server.store.put_off(apply, rule.after)
            return self._lose(rule)
        if fate == "overtaken":
            self.server.store.memory.put(path, rule.data, ALWAYS)
            return self._send(apply())
        if fate == "slow":
            time.sleep(rule.seconds)
            return self._send(apply())
        reply = apply()
        if fate == "short" and self.command == "GET":
            return self._send(reply, only=len(reply.body) // 2)
        if fate == "flip" and self.command == "GET":
            return self._send(reply._replace(body=bytes([reply.body[0] ^ 1]) + reply.body[1:]))
        return self._lose(rule)

    def _lose(self, rule: Rule) -> None:
        if rule.how == "hang":
            time.sleep(rule.seconds)
        if rule.how in ("hang", "reset"):
            self._cut()
        else:
            self._send(BROKEN if rule.how == "500" else BUSY)

    def _cut(self) -> None:
        """A connection that breaks, with RST."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def _send(self, reply: Reply, only: int | None = None) -> None:
        """``only``: so many bytes of the body, and then the connection breaks."""
        lines = [f"HTTP/1.1 {reply.status} .", f"Content-Length: {len(reply.body)}"]
        lines += [f"{name}: {value}" for name, value in reply.headers]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode()
        body = b"" if self.command == "HEAD" else reply.body
        self.connection.sendall(head + (body if only is None else body[:only]))
        if only is not None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)


# -- what requests do --------------------------------------------------------------------------------------


def _applied(
    store: StoreServer, method: str, key: str, query: dict[str, str], headers: dict[str, str], body: bytes
) -> Reply:
    memory = store.memory
    if method == "PUT":
        return _put(store, key, headers, body)
    if method == "POST":
        memory.delete(_keys_in(body))
        gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in _keys_in(body))
        return Reply(200, f'<?xml version="1.0"?><DeleteResult>{gone}</DeleteResult>'.encode())
    if method == "DELETE":
        if store.speaks == "gcs" and key not in memory.objects:
            return NO_KEY
        memory.delete([key])
        return Reply(204)
    return _get(store, key, headers) if key else _listed(store, query)


def _put(store: StoreServer, key: str, headers: dict[str, str], body: bytes) -> Reply:
    condition: Condition = ALWAYS
    if store.speaks == "s3" and headers.get("if-none-match") == "*":
        condition = None
    elif store.speaks == "s3" and "if-match" in headers:
        condition = headers["if-match"]
    elif store.speaks == "gcs" and "x-goog-if-generation-match" in headers:
        wanted = headers["x-goog-if-generation-match"]
        condition = None if wanted == "0" else wanted
    try:
        version = store.memory.put(key, body, condition)
    except FileNotFoundError:
        return NO_KEY if store.speaks == "s3" else UNMET
    except Unmet:
        return UNMET
    made = Object(body, 0 if store.speaks == "s3" else int(version), time.time())
    return Reply(200, b"", _headers(made))


def _get(store: StoreServer, key: str, headers: dict[str, str]) -> Reply:
    found = store.memory.objects.get(key)
    if found is None:
        return NO_KEY
    size = len(found.data)
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
    if wanted is None:
        return Reply(200, found.data, _headers(found))
    first, last = int(wanted[1]), min(int(wanted[2] or size), size - 1)
    if first >= size:
        return error(416, "InvalidRange", "The requested range is not satisfiable")
    told = ("Content-Range", f"bytes {first}-{last}/{size}")
    return Reply(206, found.data[first : last + 1], (*_headers(found), told))


def _headers(found: Object) -> tuple[tuple[str, str], ...]:
    modified = formatdate(found.mtime_s, usegmt=True)
    return (("ETag", found.etag), ("x-goog-generation", str(found.generation)), ("Last-Modified", modified))


def _listed(store: StoreServer, query: dict[str, str]) -> Reply:
    after = query.get("continuation-token", "")
    with store.memory.mutex:
        objects = sorted(store.memory.objects.items())
    names = [(k, v) for k, v in objects if k.startswith(query.get("prefix", "")) and k > after]
    some, more = names[: store.page], len(names) > store.page
    parts = [
        f"<Contents><Key>{escape(key)}</Key><Size>{len(each.data)}</Size><ETag>{escape(each.etag)}</ETag>"
        f"<LastModified>{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(each.mtime_s))}</LastModified>"
        "</Contents>"
        for key, each in some
    ]
    next_ = f"<NextContinuationToken>{escape(some[-1][0])}</NextContinuationToken>" if more else ""
    text = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{next_}{''.join(parts)}"
    return Reply(200, f'<?xml version="1.0" encoding="UTF-8"?>{text}</ListBucketResult>'.encode())


def _keys_in(body: bytes) -> list[str]:
    return [unescape(key) for key in re.findall(r"<Key>([^<]*)</Key>", body.decode())]
