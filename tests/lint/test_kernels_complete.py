"""Every kernel has its stub, its meaning in plain Python, a test, and a benchmark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXT = ROOT / "kudu_core/_ext"
KERNELS = sorted(".".join(path.relative_to(EXT).with_suffix("").parts) for path in EXT.rglob("*.pyx"))

# Kernel -> what says what it means, where that is no module of tests/support/oracles.
OTHER_ORACLE = {
    "base.crc32c": "the polynomial, bit by bit, in its test",
    "files.descriptors": "the system's calls",
    "base.holding": "no arithmetic: locks, compiled because a signal handler cannot cut compiled code in two",
    "base.status": "raises what it is given",
    "columns.bitmaps": "oracles/columns/columns.py",
    "changes.times": "numpy's stable argsort",
    "files.page_loader": "no arithmetic: whom it asks, which its test says",
    "files.cached_pages": "no arithmetic: which pages stay, which tests/cfile/test_page_cache.py says",
    "files.string_pages": "the general path of kudu_core/cfile/columns/writer.py",
    "files.page_fetcher": "open_page of kudu_core/cfile/pages/page.py",
    "index.nodes": "no arithmetic: memory that grows",
    "keys.hashing": "mmh3 and xxhash",
    "batch.given_batch": "tests/table/write/test_batch_rows.py: the general path",
    "batch.batch_payload": "kudu_core/tablet/store/records.py",
    "batch.batch_stores": "kudu_core/rowset/memory/memrowset.py: rows and changes one way or the other",
    "batch.batch_writes": "tests/table/write/test_batch_rows.py: the general path",
    "columns.flags": "a numpy array, in its test",
    "few.arrow_rows": "row.row_writer, of the same rows as dicts",
    "few.call_rows": "tests/table/write/test_few_rows.py: the general path",
    "few.few_writes": "tests/table/write/test_few_rows.py: the general path",
    "few.few_rows": "tests/table/write/test_few_rows.py: the general path",
    "few.log_state": "kudu_core/wal/log.py, behind a file that is not plain",
    "few.memory_counts": "sums, in its test",
    "few.row_writes": "tests/table/write/test_row_path.py: the general path",
    "few.payload": "kudu_core/tablet/store/records.py",
    "keys.move": "oracles/keys/keys.py",
    "keys.order": "oracles/keys/keys.py",
    "keys.sort": "oracles/keys/keys.py",
    "pages.encode": "oracles/pages/blocks.py",
    "pages.fixed": "oracles/pages/blocks.py",
    "pages.holder": "no arithmetic: when a page is let go of, which the tests of its holders say",
    "codec.lz4_text": "plain Python, in its test",
    "pages.strings": "oracles/pages/blocks.py",
    "pages.strings_encode": "oracles/pages/blocks.py",
    "ordered.row_batch": "tests/table/read/test_short_scan.py: the general path",
    "ordered.arrow_batch": "no arithmetic: who frees a batch, which the tests of row_batch say",
    "ordered.asked_columns": "tests/table/read/test_short_scan.py: the general path",
    "ordered.few_in_order": "tests/table/read/test_short_scan.py: the general path",
    "ordered.file_keys": "oracles/ordered/in_order.py",
    "ordered.far_strings": "tests/cfile/test_brief_pages.py: the rows themselves",
    "ordered.rows_of_keys": "tests/table/read/test_short_scan.py: the general path",
    "ordered.looked_up": "tests/table/read/test_short_scan.py: the general path",
    "ordered.row_source": "oracles/ordered/in_order.py",
    "row.change_log": "oracles/row/view.py",
    "row.column": "oracles/row/file.py",
    "row.delta_file": "oracles/row/view.py",
    "row.key_encoder": "oracles/row/codec.py",
    "row.overlay": "oracles/row/view.py",
    "row.row_writer": "oracles/row/codec.py",
    "row.shape": "oracles/row/codec.py",
    "scan.cell_set": "oracles/scan/selection.py",
    "scan.column": "no arithmetic: which pages are pinned, which the tests of selections say",
    "search.sorted_strings": "oracles/index/rowset_tree.py",
}
# Kernel -> why there is nothing to measure.
NO_BENCH = {"base.status": "runs only when something is wrong"}
# Kernel -> the kernel through which it is tested and measured.
PART_OF = {
    "files.descriptors": "files.page_fetcher",
    "ordered.arrow_batch": "ordered.few_in_order",
    "ordered.asked_columns": "ordered.looked_up",
    "batch.given_batch": "batch.batch_writes",
    "batch.batch_payload": "batch.batch_writes",
    "batch.batch_stores": "batch.batch_writes",
    "ordered.rows_of_keys": "ordered.looked_up",
    "ordered.far_strings": "ordered.looked_up",
    "ordered.row_batch": "ordered.few_in_order",
    "index.nodes": "index.btree",
    "files.page_loader": "row.file",
    "keys.move": "keys.keys",
    "keys.order": "keys.keys",
    "keys.sort": "keys.keys",
    "pages.encode": "pages.blocks",
    "pages.fixed": "pages.blocks",
    "pages.holder": "row.file",
    "pages.strings": "pages.blocks",
    "pages.strings_encode": "pages.blocks",
    "ordered.file_keys": "ordered.in_order",
    "ordered.row_source": "ordered.in_order",
    "row.column": "row.file",
    "row.overlay": "row.change_log",
    "search.sorted_strings": "index.rowset_tree",
}


def source_of(kernel: str) -> Path:
    """Without a suffix."""
    return EXT.joinpath(*kernel.split("."))


def uses(folder: str, kernel: str) -> list[str]:
    names = [kernel, PART_OF[kernel]] if kernel in PART_OF else [kernel]
    parts = [name.rpartition(".") for name in names]
    pattern = re.compile(
        "|".join(
            rf"_ext\.{re.escape(name)}\b|_ext{re.escape(dot + folder)} import [^\n]*\b{last}\b"
            for name, (folder, dot, last) in zip(names, parts, strict=True)
        )
    )
    return [p.name for p in (ROOT / folder).rglob("*.py") if pattern.search(p.read_text())]


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_has_a_stub(kernel: str) -> None:
    assert source_of(kernel).with_suffix(".pyi").exists()


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_has_an_oracle(kernel: str) -> None:
    assert (ROOT / f"tests/support/oracles/{kernel.replace('.', '/')}.py").exists() or kernel in OTHER_ORACLE


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_has_a_test(kernel: str) -> None:
    assert uses("tests/kernels", kernel)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_has_a_benchmark(kernel: str) -> None:
    assert uses("bench", kernel) or kernel in NO_BENCH


def test_exceptions_are_of_kernels_that_are_there() -> None:
    assert {*OTHER_ORACLE, *NO_BENCH, *PART_OF} <= set(KERNELS)


def test_stubs_are_of_kernels_that_are_there() -> None:
    assert {path.with_suffix("") for path in EXT.rglob("*.pyi")} == set(map(source_of, KERNELS))


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_leaves_directives_to_the_build(kernel: str) -> None:
    own = r"^#\s*cython:|@cython\.(boundscheck|wraparound|cdivision|initializedcheck)"
    assert not re.search(own, source_of(kernel).with_suffix(".pyx").read_text(), re.M)


def test_memory_is_fetched_ahead_in_one_way() -> None:
    """gcc drops calls of functions that only prefetch: ``base/loads.pxd`` says so, and keeps them."""
    own = [path.name for path in sorted(EXT.rglob("*.p[yx][xd]")) if "__builtin_prefetch" in path.read_text()]
    assert own == ["loads.pxd"]
