"""
Lets PyTorch's wheel run on a machine without CUDA, and without 2.8 GB of CUDA libraries.

    python cuda_stand_ins.py        (with the interpreter of an environment that has torch)

On Linux, PyPI's torch is linked against CUDA. On the CPU it calls none of it, but the loader requires every
library and every symbol. This script builds libraries with the symbols, each of which ends the program when
called, and puts them next to torch's libraries, at the end of its search path. CUDA's runtime is called while
torch is loaded, so it must be the real one; it is small.
"""

from __future__ import annotations

import re
import subprocess
import sysconfig
import tempfile
from collections import defaultdict
from pathlib import Path

# Library -> prefix of the names of its functions.
LIBRARIES = {
    "libcublas.so.12": r"cublas(?!Lt)",
    "libcublasLt.so.12": r"cublasLt",
    "libcudnn.so.9": r"cudnn",
    "libcufft.so.11": r"cufft",
    "libcurand.so.10": r"curand",
    "libcusparse.so.12": r"cusparse(?!Lt)",
    "libcusparseLt.so.0": r"cusparseLt",
    "libnccl.so.2": r"nccl",
    "libnvshmem_host.so.3": r"nvshmem",
}


def main() -> None:
    folder = Path(sysconfig.get_paths()["purelib"]) / "torch" / "lib"
    wanted = wanted_symbols(folder)
    for library in LIBRARIES:
        make(folder / library, wanted[library])
    subprocess.run([Path(sysconfig.get_paths()["scripts"]) / "python", "-c", "import torch"], check=True)


def wanted_symbols(folder: Path) -> dict[str, dict[str, set[str]]]:
    """Return library -> version tag (empty without one) -> symbols that torch requires."""
    listing = subprocess.run(
        ["nm", "-D", "--undefined-only", *sorted(folder.glob("libtorch*.so"))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    wanted: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for symbol, version in re.findall(r"^ +[Uw] (\w+)(?:@(\S+))?$", listing, re.MULTILINE):
        for library, beginning in LIBRARIES.items():
            if re.match(beginning, symbol):
                wanted[library][version].add(symbol)
    return wanted


def make(path: Path, symbols: dict[str, set[str]]) -> None:
    source = "".join(
        f"void {symbol}(void) {{ __builtin_trap(); }}\n" for group in symbols.values() for symbol in sorted(group)
    )
    versions = "".join(
        f"{version} {{ global: {' '.join(f'{symbol};' for symbol in sorted(group))} }};\n"
        for version, group in symbols.items()
        if version
    )
    with tempfile.TemporaryDirectory() as scratch:
        command = ["cc", "-shared", "-nostdlib", "-x", "c", "-", "-o", path, f"-Wl,-soname,{path.name}"]
        if versions:
            script = Path(scratch, "versions")
            script.write_text(versions)
            command.append(f"-Wl,--version-script,{script}")
        subprocess.run(command, input=source, text=True, check=True)


main()
