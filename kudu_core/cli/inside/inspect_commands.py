"""``inspect``: what the bytes of a stored file are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from kudu_core.cli.inside.file_pieces import FilePiece, hex_lines, whole
from kudu_core.cli.shared.exit_codes import DAMAGED
from kudu_core.cli.shared.json_values import json_line
from kudu_core.cli.shared.showing import show_records, write_line
from kudu_core.cli.shared.tables import answers, takes_path
from kudu_core.errors import InvalidArgument, TableNotFound

MOST_BYTES = 8 << 30
SHOWN = 2000
"""Characters of what a piece says, for people."""


@click.command()
@takes_path
@click.option("--hex", "as_hex", is_flag=True, help="Also the bytes.")
@click.option("--offset", type=click.IntRange(0), help="Only the piece that has this byte.")
@answers
@click.pass_context
def inspect_command(
    ctx: click.Context, path: str, storage: tuple[str, ...], as_hex: bool, offset: int | None, as_json: bool
) -> None:
    """Show what the bytes of a stored file are.

    PATH is a TABLE, a MANIFEST, a segment of the log, COMMITTED, a .rows or a .delta file; of a table's
    folder it is shown which files there are.

    Nothing is written and no lock is taken.  Exit code 3 where a checksum is not right.
    """
    place = Path(path)
    if place.is_dir():
        show_records(_files(place), as_json, ("file", "bytes", "kind"))
        return
    data = _read(path)
    spans = list(whole(_spans(path, data), data))
    if offset is not None:
        spans = [span for span in spans if span.offset <= offset < span.end]
    for span in spans:
        if as_json:
            record = {"offset": span.offset, "length": span.length, "what": span.what, "sound": span.sound}
            told = {"hex": data[span.offset : span.end].hex()} if as_hex else {}
            write_line(json_line({**record, "fields": span.fields, **told}))
        else:
            _show(span, data, as_hex)
    if any(span.sound is False for span in spans):
        ctx.exit(DAMAGED)


def _show(span: FilePiece, data: bytes, as_hex: bool) -> None:
    state = {True: "", False: "  DAMAGED", None: ""}[span.sound]
    write_line(f"{span.offset:>12,} +{span.length:<10,} {span.what}{state}")
    for name, value in span.fields.items():
        text = value if isinstance(value, str) else json_line(value)
        cut = "" if len(text) <= SHOWN else f"... ({len(text):,} characters: --json has all)"
        write_line(f"{'':>24} {name}: {text[:SHOWN]}{cut}")
    if as_hex:
        for line in hex_lines(data[span.offset : span.end], span.offset):
            write_line(f"    {line}")


def _read(path: str) -> bytes:
    from kudu_core.fs.posix import PosixFileSystem

    if not Path(path).exists():
        raise TableNotFound(f"there is no file {path}")
    return PosixFileSystem().read_bytes(path, MOST_BYTES)


def _spans(path: str, data: bytes) -> Iterable[FilePiece]:
    """By what the file begins with, or is called."""
    from kudu_core.cli.inside.container_spans import container_spans
    from kudu_core.cli.inside.log_spans import committed_spans, segment_spans
    from kudu_core.cli.inside.manifest_spans import manifest_spans, table_spans
    from kudu_core.fs.posix import PosixFileSystem

    name = Path(path).name
    if name == "COMMITTED":
        return committed_spans(data)
    if data[:7] == b"KUDUTBL":
        return table_spans(data, path)
    if data[:7] == b"KUDUMAN" or name.startswith("MANIFEST"):
        return manifest_spans(data, path)
    if data[:8] == b"KUDUWAL\n" or name.endswith((".log", ".seg")):
        return segment_spans(data)
    if data[:8] == b"KUCFILE\n" or name.endswith((".rows", ".delta")):
        return container_spans(PosixFileSystem(), path, data)
    if name == "LOCK":
        return [FilePiece(0, len(data), "hint", {"text": data.decode("utf-8", "replace")})]
    raise InvalidArgument(f"{path} is no file that a table has")


def _files(folder: Path) -> list[dict[str, object]]:
    kinds = {"TABLE": "table", "MANIFEST": "manifest", "COMMITTED": "committed", "LOCK": "lock"}
    suffixes = {".log": "log segment", ".seg": "spare log segment", ".rows": "rows", ".delta": "delta"}
    found: list[dict[str, object]] = []
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            name = file.name.removesuffix(".copy")
            kind = kinds.get(name) or suffixes.get(file.suffix)
            named = str(file.relative_to(folder))
            found.append({"file": named, "bytes": file.stat().st_size, "kind": kind or "other"})
    return found
