"""Commands as processes: what they load, and how they end by a signal or without a reader."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import kudu_core as kc

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "kudu_core"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


INTERRUPTED = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('kudu_core', run_name='__main__', alter_sys=True)"
)
"""A command that SIGINT interrupts: what a script starts in the background ignores it, and so do the
processes that such a one starts."""


def start(*words: object, **more: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, *map(str, words)], env=ENVIRONMENT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,  # type: ignore[call-overload]
    )  # fmt: skip


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def test_help_loads_nothing_large() -> None:
    code = (
        "import sys; sys.argv = ['kudu_core', '--help']\n"
        "from kudu_core.cli.entry_point import run\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "large = {'pyarrow', 'numpy', 'pandas', 'pyspark', 'rich', 'duckdb', 'polars'}\n"
        "print(sorted(large & sys.modules.keys()), file=sys.stderr)\n"
    )
    done = run(sys.executable, "-c", code)
    assert done.stderr == "[]\n" and "inspect" in done.stdout


def test_without_the_extra_one_sentence_says_what_to_install() -> None:
    code = (
        "import importlib.util as u, sys\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'rich' else found(name, *a)\n"
        "from kudu_core.cli.entry_point import run\n"
        "run()\n"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (
        "kudu_core: the command line needs click and rich; install them with: pip install 'kudu-core[cli]'\n"
    )


def test_a_reader_that_goes_ends_it_without_a_word(tmp_path: Path) -> None:
    with kc.create_table(tmp_path / "t", {"k": "int64"}, "k") as table:
        table.insert({"k": range(200_000)})
    scan = start("scan", tmp_path / "t", "--json")
    assert scan.stdout is not None and scan.stderr is not None
    assert scan.stdout.readline().startswith(b'{"k":')
    scan.stdout.close()
    assert scan.stderr.read() == b"" and scan.wait(60) == 141
    scan.stderr.close()


@pytest.mark.parametrize("when", ["following", "importing"])
def test_an_interrupt_ends_it_cleanly(tmp_path: Path, when: str) -> None:
    path = tmp_path / "t"
    with kc.create_table(path, {"k": "int64"}, "k") as table:
        table.insert([{"k": 1}])
    if when == "following":
        running = start("changes", path, "--follow", "--json", "--interval", 0.05)
        with kc.open_table(path, "rw") as table:
            seen = b""
            assert running.stdout is not None
            number = 2
            os.set_blocking(running.stdout.fileno(), False)
            while not seen:  # it follows from when it was opened
                table.insert([{"k": number}])
                number += 1
                seen = running.stdout.read() or b""
        os.set_blocking(running.stdout.fileno(), True)
        assert b'"_op":"insert"' in seen
    else:
        running = start("import", path, "-", "--format", "jsonl", stdin=subprocess.PIPE)
        assert running.stdin is not None
        running.stdin.write(b'{"k":7}\n' * 200_000)  # more than a pipe holds: it reads
        running.stdin.flush()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert err.strip() == b"kudu_core: interrupted" and b"Traceback" not in out
    with kc.open_table(path, "rw") as table:
        assert table.get(7) is None or when == "following"
        table.verify()


@pytest.mark.parametrize("command", ["changes --follow --interval 0.01", "top --interval 0.01"])
def test_an_interrupt_is_not_lost_in_a_finaliser(tmp_path: Path, command: str) -> None:
    """There Python prints it, and goes on."""
    kc.create_table(tmp_path / "t", {"k": "int64"}, "k").close()
    lost = (
        "import os, signal, sys, kudu_core as kc\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Lost:\n"
        "    def __del__(self): os.kill(os.getpid(), signal.SIGINT)\n"
        "refresh = kc.Table.refresh\n"
        "kc.Table.refresh = lambda table: (Lost(), refresh(table))[1]\n"
        f"sys.argv[1:1] = {command.split()!r}\n"
        "from kudu_core.cli.entry_point import run\n"
        "run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", lost, tmp_path / "t"], env=ENVIRONMENT, capture_output=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 130 and done.stderr.endswith(b"kudu_core: interrupted\n"), done.stderr


def test_a_shell_completes_commands() -> None:
    environment = ENVIRONMENT | {
        "_KUDU_CORE_COMPLETE": "bash_complete", "COMP_WORDS": "kudu_core ins", "COMP_CWORD": "1",
    }  # fmt: skip
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "plain,inspect\n"
    script = run(*COMMAND, "completion", "bash")
    subprocess.run(["bash", "-n"], input=script.stdout, text=True, check=True)
