"""A loader of batches for training, as PyTorch has one, without torch: workers read shares of one snapshot.

    python examples/loader.py [--table FOLDER] [--rows 100000] [--workers 2] [--start fork] [--epochs 3]

The parent takes one moment of the table and cuts the scan of it into shares (``scan_tokens``).  Each epoch
deals them out anew to its workers, which are forked or spawned, open the table for themselves, shuffle the
rows of a share and send batches back.  All of them read the same moment, whatever is written meanwhile: here
labels are corrected while the first epoch runs, which sees none of it; the next one begins with new shares
and sees all of it.

Workers are started for each epoch.  A forked one begins at once; a spawned one imports what it needs first,
so ``--start spawn`` is for long epochs, and for parents with threads of others that a fork would break.

With torch, ``Loader`` is the body of an ``IterableDataset``, and ``torch.from_numpy`` takes the arrays.  What
is trained here is a line by numpy, so that one sees that it learns.
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import kudu_core as kc

WIDTH = 8
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("features", pa.list_(pa.float32(), WIDTH)),
        ("label", pa.float32()),
    ]
)
AHEAD = 4
"""Batches that a worker may have ready before it waits."""
Floats = npt.NDArray[np.float32]


# ---- the loader ----


def read(tokens: list[kc.ScanToken], batch_rows: int, seed: int, batches: Any) -> None:
    """What a worker does: its shares in turn, each with its rows in another order.  At the end, None."""
    rng = np.random.default_rng(seed)
    for token in tokens:
        with kc.open_table(token.table_path, storage_options=token.storage_options) as table:
            rows = table.scan_token(token).to_table().combine_chunks()
        rows = rows.take(pa.array(rng.permutation(rows.num_rows)))
        for batch in rows.to_batches(max_chunksize=batch_rows):
            batches.put(batch)
    batches.put(None)


class Loader:
    """Iterate it: one epoch of record batches of at most ``batch_rows`` rows, in an order of its own.

    A worker that dies ends the epoch with an error; who stops early stops the workers too.
    """

    def __init__(
        self,
        table: kc.Table,
        columns: list[str],
        *,
        workers: int = 2,
        start: str = "fork",
        batch_rows: int = 1024,
        share_rows: int = 20_000,
        seed: int = 0,
    ) -> None:
        self._context: Any = multiprocessing.get_context(start)
        self._workers, self._batch_rows, self._seed = workers, batch_rows, seed
        self._shares = table.scan_tokens(columns, target_rows=share_rows)
        self._epoch = 0

    def __len__(self) -> int:
        """How many shares there are: more workers than that would have nothing to do."""
        return len(self._shares)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self._epoch += 1
        rng = np.random.default_rng((self._seed, self._epoch))
        shares = [self._shares[at] for at in rng.permutation(len(self._shares))]
        batches = self._context.Queue(AHEAD * self._workers)
        dealt = [shares[worker :: self._workers] for worker in range(self._workers)]
        seeds = rng.integers(1 << 32, size=self._workers).tolist()
        running = [
            self._context.Process(target=read, args=(some, self._batch_rows, one, batches), daemon=True)
            for some, one in zip(dealt, seeds, strict=True)
        ]
        for process in running:
            process.start()
        try:
            yield from received(batches, running)
        finally:
            for process in running:
                process.terminate()
                process.join()


def received(batches: Any, running: list[Any]) -> Iterator[pa.RecordBatch]:
    """Until each worker has said that it is done."""
    left = len(running)
    while left:
        try:
            batch = batches.get(timeout=0.5)
        except queue.Empty:
            if any(process.exitcode for process in running):
                raise RuntimeError("a worker of the loader has died; it has told why above") from None
            continue
        if batch is None:
            left -= 1
        else:
            yield batch


# ---- what is trained ----


def arrays(batch: pa.RecordBatch) -> tuple[Floats, Floats]:
    """Features (rows x WIDTH) and labels, where Arrow has them: nothing is copied."""
    features = batch.column("features").flatten().to_numpy().reshape(-1, WIDTH)
    return features, batch.column("label").to_numpy()


def make_rows(rows: int, seed: int) -> tuple[pa.Table, Floats]:
    """Made-up rows whose labels are wrong by 1, and the weights that give the right ones."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=WIDTH).astype(np.float32)
    features = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), WIDTH)
    columns = [pa.array(np.arange(rows)), lists, pa.array(features @ weights + 1)]
    return pa.table(columns, schema=SCHEMA), weights


def train(loader: Loader, weights: Floats, during: Any = None) -> tuple[int, float]:
    """One epoch, in place.  Rows that it had, and the mean error of what the weights said of them."""
    rows, error = 0, 0.0
    for number, batch in enumerate(loader):
        if number == 0 and during is not None:
            during()
        features, labels = arrays(batch)
        wrong = features @ weights[:WIDTH] + weights[WIDTH] - labels
        weights[:WIDTH] -= 0.1 * features.T @ wrong / len(wrong)
        weights[WIDTH] -= 0.1 * wrong.mean()
        rows, error = rows + len(wrong), error + float(np.abs(wrong).sum())
    return rows, error / max(rows, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--table", type=Path, help="keep it here; it is made where there is none")
    parser.add_argument("--rows", type=int, default=100_000, help="of a table that is made")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--start", choices=("fork", "spawn", "forkserver"), default="fork")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-rows", type=int, default=1024)
    given = parser.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="loader-"))
    try:
        with kc.create_table(given.table or folder / "samples", SCHEMA, "id", exist_ok=True) as table:
            if table.count() == 0:
                table.insert(make_rows(given.rows, seed=1)[0])
            run(table, given)
    finally:
        shutil.rmtree(folder)


def run(table: kc.Table, given: argparse.Namespace) -> None:
    """All epochs.  While the first one runs, all labels become one less."""

    def correct() -> None:
        rows = table.scan(["id", "label"]).to_table()
        table.update({"id": rows["id"], "label": pa.array(rows["label"].to_numpy() - 1)})

    weights = np.zeros(WIDTH + 1, dtype=np.float32)
    for epoch in range(given.epochs):
        begun = time.perf_counter()
        # New shares: of the moment at which this epoch begins.
        loader = Loader(
            table,
            ["features", "label"],
            workers=given.workers,
            start=given.start,
            batch_rows=given.batch_rows,
            share_rows=max(1, table.count() // (4 * given.workers)),
            seed=epoch,
        )
        rows, error = train(loader, weights, correct if epoch == 0 else None)
        took = time.perf_counter() - begun
        print(
            f"epoch {epoch + 1}: {rows:,} rows in {len(loader)} shares, {rows / took:,.0f} rows/s, "
            f"mean error {error:.3f}, the labels lie {weights[WIDTH]:+.2f} off",
            flush=True,
        )


if __name__ == "__main__":
    main()
