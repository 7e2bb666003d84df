from collections.abc import Sequence

import numpy as np

class KeyRouter:
    def __init__(
        self,
        columns: Sequence[tuple[int, int, bool]],
        hashes: Sequence[tuple[Sequence[int], int, int]],
        ranged: Sequence[int],
        cuts: Sequence[bytes],
        owners: Sequence[int],
    ) -> None: ...
    def route(self, key: bytes) -> int: ...
    def route_keys(self, data: np.ndarray, offsets: np.ndarray) -> np.ndarray: ...
    def route_many(self, keys: list[bytes]) -> list[int]: ...
