"""How values become bytes on disk: ``.rows`` and ``.delta`` files, their columns and pages.

``container`` frames and checks the pieces of a file; ``page`` adds codecs; ``column_writer`` and
``column_reader`` store one column with its zone maps; ``rows_file``, ``delta_file`` and their
writers are the two kinds of files of columns; ``page_cache`` keeps pages in memory.  Layouts: docs/format.md.
"""

from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.files.delta_file import DeltaFile
from kudu_core.cfile.files.delta_format import REDO, UNDO, DeltaMeta
from kudu_core.cfile.files.delta_writer import write_delta_file
from kudu_core.cfile.files.rows_file import RowsFile
from kudu_core.cfile.files.rows_format import RowsMeta
from kudu_core.cfile.files.rows_writer import RowsFileSpec, write_rows_file
from kudu_core.cfile.pages.container import FileMeta
from kudu_core.cfile.pages.page import BLOCK_ROWS, PAGE_ROWS
from kudu_core.cfile.pages.page_cache import CacheStatistics, PageCache

__all__ = [
    "BLOCK_ROWS",
    "PAGE_ROWS",
    "REDO",
    "UNDO",
    "CacheStatistics",
    "ColumnSpec",
    "DeltaFile",
    "DeltaMeta",
    "FileMeta",
    "PageCache",
    "RowsFile",
    "RowsFileSpec",
    "RowsMeta",
    "Zone",
    "write_delta_file",
    "write_rows_file",
]
