"""Whether what is installed works, without anything of the tree: run by the Python that it is installed for.

Makes a table, writes, reads, flushes and verifies it, by calls and by commands; says how long the first
insert took with all imports.  The compiled modules must come from the installation, and all of them.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import files, version
from importlib.util import find_spec
from pathlib import Path

BEGIN = time.perf_counter()


def main() -> None:
    os.chdir(tempfile.mkdtemp())
    sys.path[:] = [place for place in sys.path if place not in ("", str(Path(__file__).parent.parent))]
    import kudu_core as kc

    assert "site-packages" in str(kc.__file__), kc.__file__
    with kc.create_table("t", {"k": "int64", "s": "string"}, "k") as table:
        assert table.insert({"k": range(100_000), "s": ["text"] * 100_000}).inserted == 100_000
        print(f"imported and inserted 100,000 rows after {time.perf_counter() - BEGIN:.2f} s")
        table.update([{"k": 1, "s": None}])
        table.flush()
        assert table.get(1) == {"k": 1, "s": None} and table.count() == 100_000
        assert table.verify().files > 0
    built = [str(file) for file in files("kudu-core") or () if file.suffix in (".so", ".pyd")]
    for file in built:
        importlib.import_module(file.partition(".")[0].replace("/", "."))
    unwanted = [str(file) for file in files("kudu-core") or () if file.suffix in (".c", ".pyx")]
    assert not [name for name in unwanted if name.endswith(".c")], unwanted
    if find_spec("click") is not None and find_spec("rich") is not None:
        program = Path(sys.executable).with_name("kudu_core")
        done = subprocess.run([program, "count", "t"], capture_output=True, text=True, check=True)
        assert done.stdout == "100000\n", done
    on = sys.version.split()[0]
    print(f"kudu-core {version('kudu-core')}: {len(built)} compiled modules load, on Python {on}")


if __name__ == "__main__":
    main()
