"""Compiled kernels on disk, each with what it was made of."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import time

# Seconds after which a file that is being written belongs to a process that was killed.
_STALE = 24 * 3600
# What a compiler reads of the environment.
_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX",
              "SOURCE_DATE_EPOCH")
# Options that name no files.
_PLAIN = re.compile(r"-(?:O|g|f|m|D|U|std=|pedantic|W(?![apl],))[^/]*")
_SOURCES = (".c", ".i", ".S", ".s", ".sx", ".cc", ".cpp", ".cxx", ".C", ".m")
_FOLDERS = ("-I", "-iquote", "-isystem", "-idirafter")


def folder() -> pathlib.Path:
    """Where compiled kernels are kept: ET_CACHE_DIR, or `et/kernels` in the user's cache."""
    given = os.environ.get("ET_CACHE_DIR")
    if given:
        return pathlib.Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "et" / "kernels"


def clear_cache() -> None:
    """Forgets the kernels that were compiled before."""
    shutil.rmtree(folder(), ignore_errors=True)


class Entry:
    """A place for what a call of the compiler makes.

    The file there is a line with the digest of the rest, a line of JSON with the files that the
    compiler read and their digests, and the kernel. It counts only if both are what they say.
    """

    def __init__(self, parts, options, own):
        """`parts` are texts on which the result depends, `own` is a folder whose files are in them
        already."""
        self._own, self._options = os.path.join(own, ""), list(options)
        self._started = time.time_ns()
        variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        # Relative names mean another file elsewhere.
        self._is_plain = not variables and all(map(_PLAIN.fullmatch, self._options))
        here = "" if self._is_plain else os.getcwd()
        key = hashlib.sha256()
        for part in (*parts, repr(self._options), repr(variables), here):
            key.update(hashlib.sha256(part.encode()).digest())
        self._path = folder() / f"{key.hexdigest()}.kernel"

    def load(self):
        """The kernel, if it is there and would come out the same."""
        try:
            digest, rest = self._path.read_bytes().split(b"\n", 1)
            if digest.decode() != hashlib.sha256(rest).hexdigest():
                return None
            made_of, kernel = rest.split(b"\n", 1)
            made_of = json.loads(made_of)
            if any(_digest(name) != known for name, known in made_of["files"].items()):
                return None
            # Files that would be found before these.
            if _existing(made_of["folders"], made_of["names"]) != made_of["existing"]:
                return None
            return kernel
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def watch(self, temporary, has_linker_files):
        """The options that make the compiler say what it reads; none if nothing will be kept."""
        self._lists = None
        knows_all = has_linker_files or self._is_plain
        if not knows_all or any(_hides_files(option) for option in self._options):
            return []
        of_compiler, of_assembler, of_linker = self._lists = [
            os.path.join(temporary, f"{step}.d") for step in ("compiler", "assembler", "linker")]
        options = ["-MD", "-MF", of_compiler, f"-Wa,--MD,{of_assembler}"]
        if not has_linker_files:
            self._lists.pop()
            return options
        return [*options, f"-Wl,--dependency-file={of_linker}"]

    def look(self, temporary):
        """Notes what the compiler has read, as long as its lists are there."""
        self._made_of = None
        if self._lists is None:
            return
        try:
            texts = [os.fsdecode(pathlib.Path(path).read_bytes()) for path in self._lists]
        except OSError:
            return
        # Files between the steps of the compiler are gone.
        names = {name for name in set().union(*map(_listed, texts))
                 if not name.startswith(temporary) and os.path.isfile(name)}
        # A file of specs, for example.
        names.update(name for option in self._options if (name := _named(option)))
        files = {}
        for name in sorted(names):
            if name.startswith(self._own):
                continue
            try:
                state = os.stat(name)
            except OSError:
                return
            if max(state.st_mtime_ns, state.st_ctime_ns) >= self._started:
                # It may have changed after it was read.
                return
            files[name] = _digest(name)
        folders = _search_path(self._options)
        if folders:
            # Headers are looked for beside the file that includes them as well.
            folders += sorted({os.path.dirname(name) for name in files})
        endings = sorted({end for name in names for end in _endings(name)}) if folders else []
        self._made_of = {"files": files, "folders": folders, "names": endings,
                         "existing": _existing(folders, endings)}

    def keep(self, kernel):
        """Writes the file in one step: other processes see all of it, or nothing."""
        if self._made_of is None:
            return
        rest = json.dumps(self._made_of).encode() + b"\n" + kernel
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _sweep(self._path.parent)
            handle, temporary = tempfile.mkstemp(dir=self._path.parent, suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
                os.replace(temporary, self._path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError:
            # A cache that cannot be written is none.
            pass


def _digest(name):
    try:
        with open(name, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _hides_files(option):
    """Whether lists of dependencies go elsewhere with it, or lack what is read."""
    if option.startswith(("-M", "-Wp,-M", "@")):
        return True
    return option.endswith(_SOURCES) and not option.startswith("-D")


def _named(option):
    """The file that an option names, as a whole or behind a sign."""
    names = (option, option.partition("=")[2])
    return next((name for name in names if name and os.path.isfile(name)), None)


def _listed(text):
    """The files of a list of dependencies, which is in the language of make."""
    words = re.findall(r"(?:\\.|[^\s\\])+", text.replace("\\\n", " "))
    files = (word for word in words if not word.endswith(":"))
    return {re.sub(r"\\([\s#:\\])", r"\1", word).replace("$$", "$") for word in files}


def _search_path(options):
    """The folders in which options have headers looked for."""
    found, given = [], iter(options)
    for option in given:
        flag = next((flag for flag in _FOLDERS if option.startswith(flag)), None)
        if flag:
            found.append(option.removeprefix(flag) or next(given, "."))
    for name in _VARIABLES[:2]:
        if name in os.environ:
            found += [path or "." for path in os.environ[name].split(os.pathsep)]
    return found


def _endings(name):
    """What may have been looked for when a file was found."""
    parts = name.split("/")
    return ("/".join(parts[at:]) for at in range(1 if parts[0] == "" else 0, len(parts)))


def _existing(folders, names):
    """Which names there are in folders."""
    paths = (os.path.join(path, name) for path in folders for name in names)
    return [path for path in paths if os.path.isfile(path)]


def _sweep(path):
    """Removes what processes left that were killed while they wrote."""
    before = time.time() - _STALE
    for entry in os.scandir(path):
        if entry.name.endswith(".tmp") and entry.stat().st_mtime < before:
            try:
                os.unlink(entry.path)
            except OSError:
                # Another process was here.
                pass
