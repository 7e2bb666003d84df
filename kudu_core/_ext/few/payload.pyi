from kudu_core._ext.row.shape import Cell

def payload_of_rows(
    ids: tuple[int, ...],
    widths: tuple[int, ...],
    tablet_ids: tuple[int, ...],
    sections: list[tuple[int, list[list[Cell]], list[int]]],
) -> bytes: ...
