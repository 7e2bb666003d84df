"""Build of the compiled kernels: one list, one set of directives.

Switches (environment):
    KUDU_CORE_DEBUG=1                      bounds checks, overflow checks, assertions
    KUDU_CORE_SANITIZE=address,undefined   compile and link with these sanitizers (``ci/sanitize.sh``)
    KUDU_CORE_ANNOTATE=1                   Cython's annotated HTML beside each kernel
    KUDU_CORE_WERROR=1                     warnings of the C compiler are errors
    KUDU_CORE_ONLY=keys,btree              only these kernels, by their last names or whole (development)

Cython notices a changed source but not changed directives or flags, so what each kernel was built with is
kept in ``build/switches``: when that differs, its C file goes, and with it what was compiled from it.

What every kernel would otherwise contain once more (memoryviews, above all) is in one module,
``_shared``: with it the build takes a third of the time and a kernel a tenth of the room.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
EXT = Path("kudu_core/_ext")
SHARED = "kudu_core._ext._shared"
SWITCHES = ROOT / "build" / "switches"

os.chdir(ROOT)  # the sources are named from here

debug = os.environ.get("KUDU_CORE_DEBUG") == "1"
annotate = os.environ.get("KUDU_CORE_ANNOTATE") == "1"
warnings_are_errors = os.environ.get("KUDU_CORE_WERROR") == "1"
sanitize = os.environ.get("KUDU_CORE_SANITIZE", "")
only = set(filter(None, os.environ.get("KUDU_CORE_ONLY", "").split(",")))

directives = {
    "language_level": 3,
    "boundscheck": debug,
    "wraparound": False,
    "initializedcheck": debug,
    "overflowcheck": False,  # hashes and packed deltas wrap on purpose
    "cdivision": True,
    "embedsignature": True,
    "autotestdict": False,
}

# Debian's Python says -O2 -g: the last flag of a kind counts, so say what is meant.
compile_args = ["-O1", "-g", "-UNDEBUG"] if sanitize or debug else ["-O3", "-g0"]
compile_args += ["-Wall", "-Wextra", "-Wsign-compare", "-Wno-unused-function", "-Wno-unused-parameter"]
link_args: list[str] = []
if warnings_are_errors:
    compile_args.append("-Werror")
if sanitize:
    flag = f"-fsanitize={sanitize}"
    compile_args += [flag, "-fno-omit-frame-pointer"]
    link_args.append(flag)


def source_of(kernel: str) -> Path:
    """``row.view``: the kernel's file, without a suffix."""
    return EXT.joinpath(*kernel.split("."))


def forget_other_switches(kernel: str) -> None:
    """Delete the C file of a kernel that was made with other switches than these."""
    used = f"{Cython.__version__} {sorted(directives.items())} {compile_args} {link_args} {annotate}\n"
    stamp = SWITCHES / kernel
    if not stamp.exists() or stamp.read_text() != used:
        source_of(kernel).with_suffix(".c").unlink(missing_ok=True)
        SWITCHES.mkdir(parents=True, exist_ok=True)
        stamp.write_text(used)


def forget_what_has_no_source(kernels: list[str]) -> None:
    """Delete what was built of kernels that are gone, or are called otherwise: it would be imported."""
    known = {source_of(kernel) for kernel in ["_shared", *kernels]}
    for built in [*EXT.rglob("*.so"), *EXT.rglob("*.c")]:
        if built.with_name(built.name.partition(".")[0]) not in known:
            built.unlink()


def last_name(kernel: str) -> str:
    return kernel.rpartition(".")[2]


kernels = sorted(".".join(path.relative_to(EXT).with_suffix("").parts) for path in EXT.rglob("*.pyx"))
forget_what_has_no_source(kernels)
unknown = only - {*kernels, *map(last_name, kernels)}
if unknown:
    raise SystemExit(f"KUDU_CORE_ONLY: no kernel {', '.join(sorted(unknown))}")
if only:
    kernels = [kernel for kernel in kernels if only & {kernel, last_name(kernel)}]

for kernel in ["_shared", *kernels]:
    forget_other_switches(kernel)

extensions = [
    Extension(
        f"kudu_core._ext.{name}",
        [f"{source_of(name)}{suffix}"],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    for name, suffix in [("_shared", ".c"), *((kernel, ".pyx") for kernel in kernels)]
]

# Packaging tools run this file several times to ask what the package is called: those need no C.
BUILDS = {"build", "build_ext", "bdist_wheel", "bdist_egg", "editable_wheel", "develop", "install"}
compiles = not BUILDS.isdisjoint(sys.argv)

cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

setup(
    ext_modules=cythonize(
        extensions,
        compiler_directives=directives,
        shared_utility_qualified_name=SHARED,
        annotate=annotate,
        emit_linenums=debug or bool(sanitize),
        nthreads=cores if sys.platform == "linux" else 0,
        quiet=True,
    )
    if compiles
    else [],
    options={"build_ext": {"parallel": cores}},
)
