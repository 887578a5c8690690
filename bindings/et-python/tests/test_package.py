"""Types, docstrings, and what importing costs."""

import doctest
import importlib.metadata
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import et
from conftest import has_compiler, needs_compiler
from et import _await, _cache, _compile, _errors, _html, _kernel, _types


ROOT = pathlib.Path(__file__).parents[3]


def mypy(*args):
    pytest.importorskip("mypy", reason="mypy is not installed")
    return subprocess.run([sys.executable, "-m", *args], capture_output=True, text=True)


def test_types_are_what_the_stubs_say():
    """Signatures, names and classes of the running package."""
    done = mypy("mypy.stubtest", "et", "--ignore-missing-stub", "--concise", "--ignore-unused-allowlist",
                "--allowlist", str(pathlib.Path(__file__).with_name("stubtest.txt")))
    assert done.returncode == 0, done.stdout + done.stderr


def test_programs_are_checked_by_the_stubs(tmp_path):
    """`typed.py` has lines that are right, and such that must be refused."""
    source = pathlib.Path(__file__).with_name("typed.py")
    done = mypy("mypy", "--strict", "--warn-unused-ignores", "--cache-dir", str(tmp_path), source)
    assert done.returncode == 0, done.stdout


def test_the_wheel_says_what_is_in_it_and_by_which_licences():
    package = importlib.metadata.distribution("et")
    assert package.metadata["License-Expression"] == "MIT OR Apache-2.0"
    files = {path.name: path.locate() for path in package.files if ".dist-info" in path.parts[0]}
    for name in ["LICENSE-APACHE", "LICENSE-MIT"]:
        assert files[name].read_text() == (ROOT / name).read_text()
    (listed,) = [path for name, path in files.items() if name.endswith(".cyclonedx.json")]
    names = {part["name"] for part in json.loads(listed.read_text())["components"]}
    assert names >= {"et-runtime", "et-sim-cores", "pyo3"}


def test_everything_public_is_described():
    missing = []
    for name in et.__all__:
        value = getattr(et, name)
        if isinstance(value, type(pathlib)):
            continue
        if not value.__doc__:
            missing.append(name)
        if isinstance(value, type):
            members = vars(value).items()
            missing += [f"{name}.{member}" for member, part in members
                        if not member.startswith("_") and (callable(part) or hasattr(part, "fget")
                        or type(part).__name__ == "getset_descriptor") and not part.__doc__]
    assert not missing


SHOWN = {"Buffer", "Device", "Event", "Executor", "Graph", "Kernel", "KernelFunction", "Management",
         "Profile", "Run", "Stream", "compile", "open"}


def described():
    """What is public, its methods, and the insides of the package, by their names."""
    for name in ["", *et.__all__]:
        value = getattr(et, name) if name else et
        yield name or "et", value
        if isinstance(value, type):
            yield from ((f"{name}.{member}", part) for member, part in vars(value).items()
                        if not member.startswith("_"))
    for module in (_await, _cache, _compile, _errors, _html, _kernel, _types):
        yield module.__name__, module
        yield from ((f"{module.__name__}.{name}", value) for name, value in vars(module).items()
                    if getattr(value, "__module__", None) == module.__name__)


# `doctest` itself finds nothing of what is not written in Python.
DOCTESTS = {name: examples for name, value in described()
            if (examples := doctest.DocTestParser().get_examples(getattr(value, "__doc__", "") or ""))}


def test_the_main_classes_have_examples():
    assert SHOWN <= DOCTESTS.keys()


@pytest.mark.parametrize("name", DOCTESTS)
def test_examples_in_docstrings(name, cache):
    examples = DOCTESTS[name]
    source = "".join(example.source for example in examples)
    if ("et.compile(" in source or "@et.kernel" in source) and not has_compiler():
        pytest.skip("no compiler for bare RISC-V is installed")
    names = dict(vars(sys.modules.get(name.rpartition(".")[0], et)))
    test = doctest.DocTest(examples, names, name, None, None, None)
    said = []
    result = doctest.DocTestRunner().run(test, out=said.append)
    assert result.attempted == len(examples) and result.failed == 0, "".join(said)


def examples(page):
    """The examples of a page, one after the other: with the lines that the book hides behind `~`."""
    parts = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [re.sub(r"^~ ?", "", part, flags=re.MULTILINE) for part in parts]


PAGES = [ROOT / "README.md", *ROOT.glob("docs/src/*.md"), *ROOT.glob("bindings/*/README.md")]
PAGES = {str(page.relative_to(ROOT)): page for page in sorted(PAGES) if examples(page)}


def test_pages_have_examples():
    assert {"docs/src/pto.md", "docs/src/python.md", "docs/src/traces.md"} <= PAGES.keys()
    assert len(examples(PAGES["docs/src/python.md"])) > 8


@needs_compiler
@pytest.mark.parametrize("page", PAGES)
def test_the_book_is_true(page, tmp_path):
    """The examples of a page are a program, beside the committed kernels."""
    for kernel in ROOT.glob("testing/kernels/elf/*.elf"):
        shutil.copy(kernel, tmp_path)
    path = tmp_path / "book.py"
    path.write_text("\n".join(examples(PAGES[page])))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_importing_brings_no_large_modules():
    large = {"numpy", "asyncio", "trio", "inspect", "subprocess", "pathlib", "hashlib"}
    code = f"import sys, et; print(sorted({large} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert {"compile", "Binary", "open"} <= set(dir(et)) and et.compile.__module__ == "et._compile"
    with pytest.raises(AttributeError, match="no_such"):
        et.no_such
