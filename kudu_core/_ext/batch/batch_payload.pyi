import numpy as np

from kudu_core._ext.batch.given_batch import GivenBatch

def payload_of_batch(
    batch: GivenBatch,
    tablet_ids: tuple[int, ...],
    places: np.ndarray | None,
    sections: list[tuple[int, np.ndarray | None]],
) -> bytes: ...
