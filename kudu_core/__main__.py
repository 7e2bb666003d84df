"""``python -m kudu_core`` is the command ``kudu_core``."""

from kudu_core.cli.entry_point import run

if __name__ == "__main__":
    run()
