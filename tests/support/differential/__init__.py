"""Random histories of a table, run against the engine and the model side by side.

A ``Case`` is data: a schema, options and a list of steps whose ``repr`` is code that makes it again.
``replay`` runs one and raises where the engine and the model disagree; ``shrink`` leaves out what a
failure does not need.  A new kind of step is a class in ``cases`` or a name in ``upkeep``, drawn in
``drawing`` and done in ``pair``.
"""

from __future__ import annotations

from tests.support.differential.cases import (
    Apply,
    Batch,
    Case,
    Col,
    DeleteWhere,
    Disagree,
    Do,
    If,
    Invalid,
    Merge,
    ReadingBatch,
    UpdateWhere,
    When,
    Write,
    code_of,
)
from tests.support.differential.drawing import random_case
from tests.support.differential.drawing_merges import merging_case
from tests.support.differential.grounds import Folder, Ground, Store
from tests.support.differential.replaying import replay
from tests.support.differential.shaped import SHAPED, shaped_case
from tests.support.differential.shrinking import failure_of, shrink

__all__ = [
    "SHAPED",
    "Apply",
    "Batch",
    "Case",
    "Col",
    "DeleteWhere",
    "Disagree",
    "Do",
    "Folder",
    "Ground",
    "If",
    "Invalid",
    "Merge",
    "ReadingBatch",
    "Store",
    "UpdateWhere",
    "When",
    "Write",
    "code_of",
    "failure_of",
    "merging_case",
    "random_case",
    "replay",
    "shaped_case",
    "shrink",
]
