"""``report``, ``serve`` and ``metrics``: the page of a table, and its numbers for monitoring."""

from __future__ import annotations

import click

from kudu_core.cli.shared.showing import show_document
from kudu_core.cli.shared.tables import answers, reader, takes_path
from kudu_core.cli.shared.typed_text import storage_of


@click.command()
@takes_path
@click.option(
    "-o", "--output", default="report.html", show_default=True, metavar="FILE", help="Written, or replaced."
)
@answers
def report_command(path: str, storage: tuple[str, ...], output: str, as_json: bool) -> None:
    """Write the page of a table: one HTML file that asks for nothing from elsewhere.  docs/page.md.

    With --json its numbers are printed, and no file is written.
    """
    from kudu_core.web.report_table import report

    made = report(path, None if as_json else output, storage_options=storage_of(storage))
    if as_json:
        show_document(made.data.to_json(), as_json)
    else:
        click.echo(output)


@click.command()
@takes_path
@click.option("--host", default="127.0.0.1", show_default=True, help="Where it listens; it asks no password.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8470, show_default=True, help="0: a free one."
)
@click.option("--refresh", "refresh_s", type=click.FloatRange(0.1), default=2.0, show_default=True,
              metavar="SECONDS", help="How old what is shown may be.")  # fmt: skip
@answers
def serve_command(
    path: str, storage: tuple[str, ...], host: str, port: int, refresh_s: float, as_json: bool
) -> None:
    """Show the page of a table over HTTP until Ctrl-C, with /metrics and /health; for reading alone."""
    from kudu_core.web.server import serve

    def ready(url: str) -> None:
        show_document({"url": url}, as_json)

    serve(path, host=host, port=port, refresh_s=refresh_s, storage_options=storage_of(storage), ready=ready)


@click.command()
@takes_path
@answers
def metrics_command(path: str, storage: tuple[str, ...], as_json: bool) -> None:
    """Print the numbers of a table as Prometheus reads them, of what is durable now."""
    from kudu_core.table.report.prometheus_text import prometheus_text

    with reader(path, storage) as table:
        if as_json:
            show_document(dict(table.metrics()), as_json)
        else:
            click.echo(prometheus_text(table), nl=False)
