"""The server of a table's page: ``kudu_core.serve``.

A browser sends requests to this machine for whatever page it shows.  So only GET and HEAD are answered, only
where the name that the browser asked for is one of ours (a page elsewhere may give its own name this
machine's address), and the page may not be put into a frame of another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, Self

from kudu_core.errors import InvalidArgument, KuduError, shown
from kudu_core.page.render.page_html import policy
from kudu_core.table.entry import open_table
from kudu_core.table.opened.handle import HandleOwner
from kudu_core.table.report.prometheus_text import CONTENT_TYPE
from kudu_core.web.live_page import LivePage

HOST, PORT = "127.0.0.1", 8470
REFRESH_S = 5.0
LEAST_REFRESH_S = 0.1
POLL_S = 0.2
"""How soon a ``close`` is noticed."""
SLOW_S = 30.0
"""How long a request may take to arrive."""
HTML, JSON, PLAIN = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"


class PageServer:
    """A server that answers once ``run`` is called, until ``close``.  A context manager."""

    def __init__(
        self, table: HandleOwner, host: str, port: int, refresh_s: float, names: Collection[str]
    ) -> None:
        """``names``: host names beside those of this machine, by which it may be asked for."""
        page = LivePage(table, refresh_s)
        known = frozenset(name.lower() for name in names)

        class Handler(PageHandler):
            shows = page
            answers_to = staticmethod(lambda asked: is_ours(asked, host, known))

        try:
            self._server = _Server((host, port), Handler)
        except OverflowError as wrong:
            raise InvalidArgument(f"port is 0 to 65,535, not {shown(port)}") from wrong
        self._is_closed = False
        self.port = int(self._server.server_address[1])
        shown_host = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown_host}:{self.port}/"

    def run(self) -> None:
        """Answer requests until another thread calls ``close``, or this one is interrupted."""
        if not self._is_closed:
            self._server.serve_forever(POLL_S)

    def close(self) -> None:
        """End ``run``, of another thread too, and let go of the port."""
        self._is_closed = True
        if self._server.is_running:
            self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    is_running = False

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        self.is_running = True
        try:
            super().serve_forever(poll_interval)
        finally:
            self.is_running = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no news."""


class PageHandler(BaseHTTPRequestHandler):
    """Answers one connection."""

    shows: LivePage
    answers_to: Callable[[str | None], bool]
    server_version, sys_version = "kudu_core", ""
    timeout = SLOW_S

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _refused(self) -> None:
        self._send(405, PLAIN, b"only GET and HEAD: this page changes nothing\n", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refused

    def _answer(self) -> None:
        if not self.answers_to(self.headers.get("Host")):
            self._send(421, PLAIN, b"this server does not answer to that host name\n")
            return
        path = self.path.partition("?")[0]
        try:
            self._send(*self._found(path))
        except (KuduError, OSError) as error:
            if isinstance(error, ConnectionError | TimeoutError):
                self.close_connection = True
                return
            told = f"{type(error).__name__}: {error}\n"
            self._send(503, PLAIN, told.encode("utf-8", "backslashreplace"))

    def _found(self, path: str) -> tuple[int, str, bytes]:
        page = self.shows
        if path in ("/", "/index.html"):
            return 200, HTML, page.page()
        if path == "/content":
            return 200, HTML, page.content()
        if path == "/data.json":
            return 200, JSON, page.data()
        if path == "/metrics":
            return 200, CONTENT_TYPE, page.metrics()
        if path == "/health":
            ok, told = page.health()
            return (200 if ok else 503), JSON, told
        return 404, PLAIN, b"there are /, /data.json, /metrics and /health\n"

    def _send(self, status: int, kind: str, body: bytes, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            **(more or {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is written to the terminal for a request."""


def is_ours(asked: str | None, bound: str, names: Collection[str]) -> bool:
    """Whether a request's ``Host`` is one of this server's: an address, not a name that anybody can give it.

    ``bound``: the address or name that it listens at.
    """
    if asked is None:
        return False
    host = asked.strip().lower()
    host = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    if host in ("localhost", bound.lower()) or host in names:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or not _is_loopback(bound)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def page_server(
    table: HandleOwner,
    *,
    host: str = HOST,
    port: int = PORT,
    refresh_s: float = REFRESH_S,
    names: Collection[str] = (),
) -> PageServer:
    """A server of a table's page that listens, and answers when ``run`` is called; ``port`` 0: a free one."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 1 << 16:
        raise InvalidArgument(f"port is 0 to 65,535, not {shown(port)}")
    if not isinstance(refresh_s, int | float) or not refresh_s >= LEAST_REFRESH_S:
        raise InvalidArgument(f"refresh_s is {LEAST_REFRESH_S} or more, not {shown(refresh_s)}")
    return PageServer(table, host, port, float(refresh_s), names)


def serve(
    table: HandleOwner | str | os.PathLike[str],
    *,
    host: str = HOST,
    port: int = PORT,
    refresh_s: float = REFRESH_S,
    names: Collection[str] = (),
    storage_options: Mapping[str, Any] | None = None,
    ready: Callable[[str], object] = lambda url: None,
) -> None:
    """Show a table's page over HTTP until Ctrl-C: live, for reading alone, to this machine.

    ``/`` is the page, which brings itself up to date; ``/data.json`` its numbers (``ReportData``);
    ``/metrics`` those of ``Table.metrics`` for Prometheus; ``/health`` whether the table can be read.
    docs/page.md has all.

    >>> kc.serve(stock, port=-1)
    Traceback (most recent call last):
    kudu_core.errors.InvalidArgument: port is 0 to 65,535, not -1

    Parameters
    ----------
    table
        A ``Table``, or the path or URL of one, which is opened for reading; others may write to it.
    host, port
        Where it listens.  Whoever reaches another host than the default sees the bounds of keys, the names of
        columns and the sizes of the table: there is no password.
    refresh_s
        How old what is shown may be, in seconds.
    names
        Host names, beside addresses and ``localhost``, by which browsers may ask for it.
    storage_options
        As of ``open_table``, of a URL.
    ready
        Called with the URL once it listens.

    Raises
    ------
    InvalidArgument
        A port or a time that cannot be.
    OSError
        The port is taken.
    """
    if isinstance(table, HandleOwner):
        with page_server(table, host=host, port=port, refresh_s=refresh_s, names=names) as server:
            try:
                ready(server.url)
                server.run()
            except KeyboardInterrupt:
                return
        return
    with open_table(table, storage_options=storage_options) as opened:
        serve(opened, host=host, port=port, refresh_s=refresh_s, names=names, ready=ready)


__all__ = ["PageServer", "is_ours", "page_server", "serve"]
