#!/usr/bin/env bash
# The checksum of 64-bit ARM, on this machine: what ``_ext/base/crc32c.pyx`` has in C is compiled by a cross
# compiler and run by an emulator, with the instruction and by tables, over lengths of all three loops.
#
#   ci/arm.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

has_cross_compiler() { command -v aarch64-linux-gnu-gcc >/dev/null; }
has_emulator() { command -v qemu-aarch64 >/dev/null; }
need has_cross_compiler "a C compiler for ARM" gcc-aarch64-linux-gnu libc6-dev-arm64-cross
need has_emulator "an emulator of ARM" qemu-user
need find_python "Python 3.11 or newer" python3

here="$ROOT/build/arm"
mkdir -p "$here"
"$PYTHON" - "$here/crc32c.c" <<'PYTHON'
import re
import sys
from pathlib import Path

text = Path("kudu_core/_ext/base/crc32c.pyx").read_text()
[body] = re.findall(r'cdef extern from \*:\n    """\n(.*?)"""', text, re.S)
main = r"""
#include <stdio.h>
int main(void) {
    static uint8_t data[70000];
    uint32_t seed = 1;
    size_t size;
    kc_crc_init();
    if (!kc_crc_has_fast()) { puts("the instruction is not found"); return 1; }
    for (size = 0; size < sizeof data; size++) {
        seed = seed * 1103515245u + 12345u;
        data[size] = (uint8_t)(seed >> 16);
    }
    if (kc_crc_fast(0, (const uint8_t *)"123456789", 9) != 0xE3069283u) { puts("wrong"); return 1; }
    for (size = 0; size + 9 < sizeof data; size += size < 3000 ? 1 : 997)
        for (int at = 0; at < 9; at += 4)
            if (kc_crc_fast(seed, data + at, size) != kc_crc_portable(seed, data + at, size)) {
                printf("wrong at %zu bytes\n", size);
                return 1;
            }
    puts("the instruction gives what the tables give");
    return 0;
}
"""
Path(sys.argv[1]).write_text(body + main)
PYTHON
say "compile for ARM, and run"
aarch64-linux-gnu-gcc -O3 -Wall -Wextra -Werror -static "$here/crc32c.c" -o "$here/crc32c"
instructions="$(aarch64-linux-gnu-objdump -d "$here/crc32c" | grep -c crc32cx || true)"
[ "$instructions" != 0 ] || die "the instruction is not in what was compiled"
qemu-aarch64 -cpu max "$here/crc32c"
