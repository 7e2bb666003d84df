"""The errors of a batch for which there is no memory: nothing of it was applied, and what to do."""

from __future__ import annotations

from kudu_core.errors import MemoryLimit


def too_much(batch_bytes: int, limit_bytes: int) -> MemoryLimit:
    return MemoryLimit(
        f"a batch of {batch_bytes:,} bytes does not fit into memory_limit_bytes={limit_bytes:,}; "
        "nothing of it was applied: write it in smaller pieces or raise the option"
    )


def no_store(reason: object) -> MemoryLimit:
    return MemoryLimit(
        f"no store in memory can take the batch ({reason}); nothing of it was applied: write it in smaller "
        "pieces"
    )


def no_memory(batch_bytes: int) -> MemoryLimit:
    return MemoryLimit(
        f"the system gave no memory for a batch of {batch_bytes:,} bytes; nothing of it was applied: write "
        "it in smaller pieces, or lower memory_limit_bytes so that memory is flushed before"
    )
