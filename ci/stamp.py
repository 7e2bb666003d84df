"""A hash of what the environment (``dependencies``) or the compiled kernels (``kernels``) depend on."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def dependencies() -> bytes:
    """The parts of pyproject.toml that pip reads, and where the tree is (the install is editable)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    read = [project["build-system"], project["project"], project["dependency-groups"], str(ROOT), sys.version]
    return json.dumps(read, sort_keys=True).encode()


def _named(path: Path) -> bytes:
    return path.relative_to(ROOT).as_posix().encode()


def kernels() -> bytes:
    sources = sorted(p for p in (ROOT / "kudu_core/_ext").rglob("*") if p.suffix in (".pyx", ".pxd", ".h"))
    parts = [_named(path) + b"\n" + path.read_bytes() for path in [ROOT / "setup.py", *sources]]
    switches = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("KUDU_CORE_")]
    return b"\n".join([*parts, " ".join(switches).encode(), sys.version.encode()])


if __name__ == "__main__":
    print(hashlib.sha256({"dependencies": dependencies, "kernels": kernels}[sys.argv[1]]()).hexdigest())
