"""Other processes: programs, and forks that do one thing and tell."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path

import kudu_core as kc
from tests.support import clock

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65_534


def python(
    code: str, *arguments: object, within_s: float = 60, warnings: str = "error"
) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own.  ``warnings``: what becomes of them there."""
    code = textwrap.dedent(code)
    if os.environ.get(clock.SWITCH):
        code = f"from tests.support import clock\nclock.set_clocks()\n{code}"
    return subprocess.run(
        [sys.executable, "-W", warnings, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )


def in_child(work: Callable[[], object], *, user: int | None = None) -> str:
    """Fork, do the work in the child, and return what it returned or raised, as text.

    ``user``: as whom the child works; only root may ask for that.
    """
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        text = ""
        try:
            if user is not None:
                os.setgid(user)
                os.setuid(user)
            text = repr(work())
        except (kc.KuduError, OSError) as error:
            text = f"{type(error).__name__}: {error}"
        except BaseException:  # noqa: BLE001  the parent judges
            text = traceback.format_exc()
        finally:
            os.write(write, text.encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text
