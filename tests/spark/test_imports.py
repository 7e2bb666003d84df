"""What a new process of Spark's has to import before it reads or writes the first row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import kudu_core as kc

MOST_MODULES = 975
"""Of all packages together; pandas alone has 350 more."""
STORY = """
import sys
import numpy as np
import pyarrow as pa
from kudu_core.engines.spark import source, write
from kudu_core.engines.spark.schema import binary_cells

path = sys.argv[1]
schema = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])
struct = source.schema({"path": path})
numbers = pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(np.arange(3).tobytes())])
batch = pa.RecordBatch.from_arrays([numbers, pa.nulls(3, pa.string())], schema=schema)
writer = source.KuduWriter({"path": path}, struct, False)
writer.commit([writer.write(iter([batch]))])
reader = source.KuduReader({"path": path}, struct)
assert sum(b.num_rows for part in reader.partitions() for b in reader.read(part)) == 3
function = write.staging_function(source.KuduWriter({"path": path}, struct, False)._job)
[told] = function(iter([batch]))
assert told.column(1).null_count == 0
print(len(sys.modules), "pandas" in sys.modules)
"""


def test_no_pandas_and_not_too_much(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    schema = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])
    kc.create_table(path, schema, "k", partition_by=kc.HashPartition("k", 2)).close()
    command = [sys.executable, "-c", STORY, path]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert told[1] == "False" and int(told[0]) < MOST_MODULES
