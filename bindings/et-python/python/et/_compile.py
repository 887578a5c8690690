"""Compiling kernels at run time, and keeping what was compiled."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import typing

from . import _cache, _et
from ._cache import clear_cache
from ._errors import CompileError, Diagnostic

_MESSAGE = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?:(?P<line>\d+):)?(?:(?P<column>\d+):)? ?"
    r"(?P<severity>fatal error|error|warning|note): (?P<message>.*)$"
    # Of the linker; the file is an object file where there are no lines.
    r"|^(?:\S*ld: )?(?P<at>[^\s:]+):(?:(?P<number>\d+):)?(?:\(\.[^)]*\):)? "
    r"(?P<why>(?:undefined reference|multiple definition).*)$", re.M | re.I)
_SUFFIXES = {"c": ".c", "asm": ".S"}


class Binary(bytes):
    """A compiled kernel: the bytes of an ELF file, for `Device.load`."""

    name: str
    """Name of the kernel."""
    warnings: list[Diagnostic]
    """What the compiler said; nothing if it was compiled before."""
    cached: bool
    """It was compiled before."""

    def save(self, path: typing.Union[str, os.PathLike[str]]) -> None:
        """Writes the file."""
        pathlib.Path(path).write_bytes(self)


def sdk() -> pathlib.Path:
    """The device SDK: that of the variable ET_KERNEL_FILES, or that of this package."""
    given = os.environ.get("ET_KERNEL_FILES")
    folder = pathlib.Path(given) if given else pathlib.Path(__file__).parent / "_sdk"
    if not (folder / "bin" / "as").exists():
        raise CompileError(f"no device SDK in {folder}: there is no bin/as")
    return folder


def compile(source: str, *, name: str = "kernel", language: str = "c",
            options: typing.Sequence[str] = ("-O2",), libc: typing.Optional[str] = None,
            cache: bool = True) -> Binary:
    """Compiles a kernel in C, or with `language="asm"` in assembly, with the instructions of the
    card by their names.

    `options` go to the compiler, `libc` is `None` or "picolibc". What was compiled before by the
    same name, with the same options, compiler and device SDK, is taken from a cache on disk
    (`ET_CACHE_DIR`), as long as the files that were read for it say the same.

    >>> import et
    >>> binary = et.compile("long entry_point(void) { return 0; }", name="nothing")
    >>> binary[:4], binary.name, binary.warnings
    (b'\\x7fELF', 'nothing', [])
    """
    if language not in _SUFFIXES:
        raise ValueError(f"language {language!r}: there are 'c' and 'asm'")
    files = sdk()
    # The name is that of the file in what debuggers and messages show.
    parts = (source, name, language, str(libc), _toolchain(str(files)))
    entry = _cache.Entry(parts, options, files) if cache else None
    if entry:
        kept = entry.load()
        if kept is not None:
            return _binary(kept, name, [], True)
    made, warnings = _compile(source, name, language, options, libc, files, entry)
    if entry:
        entry.keep(made)
    return _binary(made, name, warnings, False)


def _binary(content, name, warnings, cached):
    binary = Binary(content)
    binary.name, binary.warnings, binary.cached = name, warnings, cached
    return binary


def _compile(source, name, language, options, libc, files, entry):
    with tempfile.TemporaryDirectory(prefix="et-") as folder:
        # What debuggers and messages show.
        path = os.path.join(folder, (re.sub(r"\W", "_", name) or "kernel") + _SUFFIXES[language])
        result = os.path.join(folder, "kernel.elf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)
        # The result does not depend on where this is.
        short = [f"-ffile-prefix-map={folder}/=", f"-ffile-prefix-map={os.getcwd()}=."]
        watch = entry.watch(folder, _lists_linker_files(str(files))) if entry else []
        done, output = _et.run_compiler(files, libc,
                                        [*short, *options, *watch, path, "-o", result])
        output = output.replace(folder + os.sep, "")
        found = list(_diagnostics(output))
        if not done:
            first = next((one for one in found if "error" in one.severity), None)
            text = str(first) if first else output.strip() or "the compiler was stopped"
            raise CompileError(text, found, output)
        if entry:
            entry.look(folder)
        with open(result, "rb") as file:
            return file.read(), found


def _diagnostics(output):
    for match in _MESSAGE.finditer(output):
        if match["at"]:
            number = match["number"]
            yield Diagnostic(match["at"], int(number) if number else None, None, "error",
                             match["why"])
            continue
        if match["file"] == "collect2":
            # Says again that there was an error.
            continue
        line, column = match["line"], match["column"]
        yield Diagnostic(match["file"], int(line) if line else None,
                         int(column) if column else None, match["severity"].lower(), match["message"])


@functools.lru_cache(maxsize=None)
def _toolchain(files: str) -> str:
    """What the result depends on besides the source: compiler, device SDK, this package."""
    key = hashlib.sha256(_et.version.encode())
    for path in sorted(pathlib.Path(files).rglob("*")):
        if path.is_file():
            key.update(str(path.relative_to(files)).encode() + b"\0")
            key.update(hashlib.sha256(path.read_bytes()).digest())
    gcc = str(_et.compiler(pathlib.Path(files)))
    said = subprocess.run([gcc, "-v"], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    key.update(said.stderr)
    for program in (gcc, "as", "ld"):
        where = shutil.which(gcc) if program == gcc else subprocess.run(
            [gcc, f"-print-prog-name={program}"], capture_output=True, text=True,
            check=False).stdout.strip()
        if where and os.path.exists(where):
            state = os.stat(where)
            key.update(f"{where} {state.st_size} {state.st_mtime_ns}".encode())
    return key.hexdigest()


@functools.lru_cache(maxsize=None)
def _lists_linker_files(files: str) -> bool:
    """Whether the linker writes down what it reads, as GNU's does from 2.35 on."""
    gcc = str(_et.compiler(pathlib.Path(files)))
    said = subprocess.run([gcc, "-Wl,--help"], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)
    return "--dependency-file" in said.stdout
