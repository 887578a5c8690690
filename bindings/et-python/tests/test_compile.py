"""Compiling at run time, and the cache."""

import multiprocessing
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import et

from conftest import SIM, needs_compiler

pytestmark = needs_compiler

SCALE = """
#include <et/device.h>
struct args { float *x; float factor; uint64_t n; };
int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    struct et_range mine = et_part(args->x, sizeof(float), args->n, part, parts);
    for (uint64_t i = mine.begin; i < mine.end; i++)
        args->x[i] *= args->factor;
    return 0;
}
ET_TASK_ENTRY;
"""


def test_c(device, cache):
    kernel = device.load(et.compile(SCALE, name="scale"),
                         signature=[et.InOut[et.f32], et.f32, et.u64])
    assert kernel.name == "scale"
    x = device.array(np.arange(100, dtype="f4"))
    kernel.launch(x, 2.0, 100).wait(10)
    np.testing.assert_array_equal(x.to_numpy(), 2 * np.arange(100, dtype="f4"))


def test_numbers_become_what_the_file_states(device, cache):
    source = """
#include <et/device.h>
struct args { uint8_t *z; uint8_t a; int16_t b; uint16_t c; double d; int8_t e; uint32_t n; };
ET_ARGUMENTS("z: out u8[], a: u8, b: i16, c: f16, d: f64, e: i8, n: u32");
int64_t entry_point(const struct args *args, const struct kernel_environment *env)
{
    const uint8_t *from = (const uint8_t *)args;
    for (uint32_t i = 0; i < args->n && et_index(env) == 0; i++)
        args->z[i] = from[i];
    return 0;
}
"""
    kernel = device.load(et.compile(source, name="numbers"))
    offsets = {parameter.name: parameter.offset for parameter in kernel.signature}
    assert offsets == {"z": 0, "a": 8, "b": 10, "c": 12, "d": 16, "e": 24, "n": 28}
    z = device.zeros(32, "u1")
    kernel.launch(z, 200, -2, 1.5, -2.5, -1, 32).wait(10)
    fields = {"names": list(offsets), "offsets": list(offsets.values()),
              "formats": ["u8", "u1", "i2", "f2", "f8", "i1", "u4"]}
    assert z.to_numpy().view(fields)[0].tolist() == (z.address, 200, -2, 1.5, -2.5, -1, 32)
    for wrong in [(256, -2, 1.5, -2.5, -1), (200, 1 << 15, 1.5, -2.5, -1), (200, -2, 1e5, -2.5, -1)]:
        with pytest.raises(OverflowError):
            kernel.launch(z, *wrong, 32)


def test_assembly_with_the_instructions_of_the_card(device, cache):
    source = """
    .globl entry_point
entry_point:
    ld      t0, 0(a0)
    mov.m.x m0, zero, 255
    csrr    t1, hartid
    bnez    t1, 1f
    flw.ps  f0, 0(t0)
    fadd.ps f0, f0, f0
    fsw.ps  f0, 0(t0)
1:  li      a0, 0
    ret
"""
    kernel = device.load(et.compile(source, language="asm"))
    x = device.array(np.arange(8, dtype="f4"))
    kernel.launch(x).wait(10)
    np.testing.assert_array_equal(x.to_numpy(), 2 * np.arange(8, dtype="f4"))


def test_mistakes_have_places(cache):
    with pytest.raises(et.CompileError) as caught:
        et.compile("int f(void)\n{\n    return nothing;\n}\n", name="wrong")
    error = caught.value
    assert (error.file, error.line, error.column) == ("wrong.c", 3, 12)
    assert "nothing" in str(error) and error.diagnostics[0].severity in ("error", "note")
    assert "wrong.c:3:12" in error.output and "nothing" in error._repr_html_()
    with pytest.raises(et.CompileError) as caught:
        et.compile("nonsense.ps f0\n", language="asm", name="wrong")
    assert caught.value.line == 1 and caught.value.file == "wrong.S"
    with pytest.raises(et.CompileError, match="no_such_function"):
        et.compile("void no_such_function(void); long entry_point(void)"
                   "{ no_such_function(); return 0; }")
    with pytest.raises(ValueError):
        et.compile("", language="fortran")
    with pytest.raises(et.ArgumentError):
        et.compile(SCALE, libc="glibc")
    assert not cache.exists() or not list(cache.iterdir())


def test_warnings_are_kept(cache):
    binary = et.compile(SCALE + "static int unused;\n", options=["-O2", "-Wall"])
    assert [found.severity for found in binary.warnings] == ["warning"]


def test_the_cache_knows_source_options_and_compiler(cache, monkeypatch):
    first = et.compile(SCALE)
    again = et.compile(SCALE)
    assert not first.cached and again.cached and first == again
    assert not et.compile(SCALE + "\n").cached
    assert not et.compile(SCALE, options=["-O1"]).cached
    other = et.compile(SCALE, name="other")
    assert not other.cached and b"other.c" in other and b"other.c" not in first
    assert not et.compile(SCALE, cache=False).cached
    from et import _compile
    monkeypatch.setattr(_compile, "_toolchain", lambda _: "another compiler")
    assert not et.compile(SCALE).cached
    et.clear_cache()
    assert not et.compile(SCALE).cached


def test_what_does_not_depend_on_the_folder_is_the_same(cache):
    assert et.compile(SCALE, cache=False) == et.compile(SCALE, cache=False)


def test_a_cache_that_cannot_be_written_is_none(cache, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ET_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert not et.compile(SCALE).cached


def test_another_device_sdk(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("ET_KERNEL_FILES", str(tmp_path))
    with pytest.raises(et.CompileError, match="no device SDK"):
        et.compile(SCALE)


HEADER = """
#include <et/device.h>
#include "mine.h"
long entry_point(const struct args *args, const struct kernel_environment *env) { return MINE; }
"""


def is_kept(source, **how):
    """Compiles twice; returns whether the second time was none."""
    first = et.compile(source, **how)
    second = et.compile(source, **how)
    assert not first.cached and (first == second or not second.cached)
    return second.cached


def in_folder(tmp_path, name, **files):
    folder = tmp_path / name
    folder.mkdir(parents=True)
    for file, text in files.items():
        (folder / file.replace("_h", ".h")).write_text(text)
    return folder


def test_the_cache_knows_what_headers_say(cache, tmp_path):
    folder = in_folder(tmp_path, "d", mine_h='#include "other.h"\n', other_h="#define MINE 1\n")
    options = ["-O2", f"-I{folder}"]
    first = et.compile(HEADER, options=options)
    assert et.compile(HEADER, options=options).cached
    (folder / "other.h").write_text("#define MINE 2\n")
    second = et.compile(HEADER, options=options)
    assert not second.cached and second != first
    assert et.compile(HEADER, options=options).cached
    (folder / "other.h").unlink()
    with pytest.raises(et.CompileError, match="other.h"):
        et.compile(HEADER, options=options)
    (folder / "other.h").write_text("#define MINE 2\n")
    assert et.compile(HEADER, options=options) == second


@pytest.mark.parametrize("option", ["-include", "-imacros"])
def test_the_cache_knows_what_options_include(cache, tmp_path, option):
    folder = in_folder(tmp_path, "d d", pre_h="#define MINE 1\n")
    source = HEADER.replace('#include "mine.h"', "")
    options = [option, str(folder / "pre.h")]
    first = et.compile(source, options=options)
    assert et.compile(source, options=options).cached
    (folder / "pre.h").write_text("#define MINE 2\n")
    assert et.compile(source, options=options) != first


def test_a_header_that_is_found_earlier_now(cache, tmp_path):
    early, late = in_folder(tmp_path, "a"), in_folder(tmp_path, "b", mine_h="#define MINE 1\n")
    options = [f"-I{early}", "-I", str(late)]
    first = et.compile(HEADER, options=options)
    assert et.compile(HEADER, options=options).cached
    (early / "mine.h").write_text("#define MINE 2\n")
    second = et.compile(HEADER, options=options)
    assert not second.cached and second != first
    (early / "et").mkdir()
    (early / "et" / "device.h").write_text("#include_next <et/device.h>\n")
    assert not et.compile(HEADER, options=options).cached


def test_relative_names_are_those_of_the_folder(cache, tmp_path, monkeypatch):
    folders = [in_folder(tmp_path, f"{name}/include", mine_h=f"#define MINE {name}\n").parent
               for name in "12"]
    results = []
    for folder in folders * 2:
        monkeypatch.chdir(folder)
        results.append(et.compile(HEADER, options=["-Iinclude"]))
    assert [result.cached for result in results] == [False, False, True, True]
    assert results[0] == results[2] != results[1] == results[3]
    # Without such options it does not matter where one is.
    et.compile(SCALE, options=["-O2", "-Wall", "-DX=1"])
    monkeypatch.chdir(tmp_path)
    assert et.compile(SCALE, options=["-O2", "-Wall", "-DX=1"]).cached


@pytest.mark.parametrize("language", ["c", "asm"])
def test_the_cache_knows_what_the_assembler_reads(cache, tmp_path, monkeypatch, language):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.bin").write_bytes(b"12345678")
    text = '.incbin "data.bin"\n'
    source = f"    .globl entry_point\nentry_point:\n    li a0, 0\n    ret\n{text}"
    if language == "c":
        source = r"""long entry_point(void)
{
    __asm__ volatile("j 1f\n.incbin \"data.bin\"\n1:");
    return 0;
}"""
    first = et.compile(source, language=language)
    assert et.compile(source, language=language).cached
    (tmp_path / "data.bin").write_bytes(b"87654321")
    second = et.compile(source, language=language)
    assert not second.cached and second != first
    if language == "asm":
        (tmp_path / "mine.h").write_text("#define MINE 1\n")
        source = '#include "mine.h"\n' + source.replace("a0, 0", "a0, MINE")
        first = et.compile(source, language=language, options=["-I."])
        (tmp_path / "mine.h").write_text("#define MINE 2\n")
        assert et.compile(source, language=language, options=["-I."]) != first


def test_the_cache_knows_what_the_linker_reads(cache, tmp_path):
    from et import _compile
    script = tmp_path / "kernel.ld"
    script.write_text((_compile.sdk() / "kernel.ld").read_text())
    options = ["-O2", "-T", str(script)]
    assert is_kept(SCALE, options=options)
    script.write_text(script.read_text() + "\n/* Another. */\n")
    assert not et.compile(SCALE, options=options).cached


def test_what_cannot_be_known_is_not_kept(cache, tmp_path):
    more = tmp_path / "more.c"
    more.write_text("long more(void) { return 1; }\n")
    assert not is_kept(SCALE, options=["-O2", str(more)])
    assert not is_kept(SCALE, options=["-O2", "-MD", "-MF", str(tmp_path / "mine.d")])
    assert (tmp_path / "mine.d").exists()


def test_a_header_that_changes_meanwhile_is_not_kept(cache, tmp_path, monkeypatch):
    folder = in_folder(tmp_path, "d", mine_h="#define MINE 1\n")
    from et import _compile
    run = _compile._et.run_compiler

    def run_and_write(*args):
        result = run(*args)
        (folder / "mine.h").write_text("#define MINE 2\n")
        return result

    with monkeypatch.context() as patched:
        patched.setattr(_compile._et, "run_compiler", run_and_write)
        first = et.compile(HEADER, options=[f"-I{folder}"])
    second = et.compile(HEADER, options=[f"-I{folder}"])
    assert not second.cached and second != first


def kept(cache):
    (path,) = cache.iterdir()
    return path


@pytest.mark.parametrize("damage", [
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes()[:-1]),
    lambda path: path.write_bytes(path.read_bytes()[:100]),
    lambda path: path.write_bytes(path.read_bytes() + b"x"),
    lambda path: path.write_bytes(os.urandom(5000)),
    lambda path: path.write_bytes(bytes(path.stat().st_size)),
    lambda path: path.write_bytes(path.read_bytes().replace(b"ELF", b"elf")),
    lambda path: path.write_bytes(re.sub(rb"[0-9a-f]", b"0", path.read_bytes(), count=100)),
])
def test_a_damaged_file_is_replaced(cache, damage):
    first = et.compile(SCALE)
    damage(kept(cache))
    second = et.compile(SCALE)
    assert not second.cached and second == first
    third = et.compile(SCALE)
    assert third.cached and third == first


def test_what_killed_processes_left_is_removed_some_day(cache):
    cache.mkdir()
    old, new, other = cache / "a.tmp", cache / "b.tmp", cache / "other"
    for path in (old, new, other):
        path.write_bytes(b"half")
    for path in (old, other):
        os.utime(path, (path.stat().st_mtime - 2 * 86400,) * 2)
    et.compile(SCALE)
    assert not old.exists() and new.exists() and other.exists()


def compile_many(folder):
    os.environ["ET_CACHE_DIR"] = folder
    return [bytes(et.compile(SCALE, options=[f"-DX={number}"])) for number in range(4)]


def test_processes_share_the_cache(cache):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        results = pool.map(compile_many, [str(cache)] * 4)
    assert all(result == results[0] for result in results)
    assert len(list(cache.iterdir())) == 4
    assert all(any(path.read_bytes().endswith(result) for result in results[0])
               for path in cache.iterdir())


@et.kernel("""
int64_t et_task(const struct args *args, const struct kernel_environment *env, uint64_t part,
                uint64_t parts)
{
    struct et_range mine = et_part(args->z, sizeof(float), args->n, part, parts);
    for (uint64_t i = mine.begin; i < mine.end; i++)
        args->z[i] = args->x[i] + args->y;
    return 0;
}
ET_TASK_ENTRY;
""")
def shift(x: et.In[et.f32], z: et.Out[et.f32], y: et.f32, n: et.u64):
    """z = x + y"""


def test_kernels_beside_their_signature(device, cache):
    x, z = device.array(np.arange(64, dtype="f4")), device.empty(64)
    for launch in (shift, shift[1], shift[..., device.stream()], shift.launch):
        launch(x, z, 1, 64).wait(10)
        np.testing.assert_array_equal(z.to_numpy(), np.arange(64, dtype="f4") + 1)
    assert shift.__doc__ == "z = x + y" and len(list(cache.iterdir())) == 1
    graph = et.Graph()
    graph.add(shift.on(device), x, z, 1.0, 64)
    graph.add(shift.on(device), z, x, 1.0, 64)
    graph.run(timeout=20)
    assert x.to_numpy()[0] == 2
    with et.open(SIM) as other:
        shift(other.array(np.zeros(8, "f4")), other.empty(8), 1.0, 8).wait(10)
    device.reset()
    shift(device.array(np.zeros(8, "f4")), device.empty(8), 1.0, 8).wait(10)
    with pytest.raises(TypeError, match="which device"):
        shift(1, 2, 3, 4)


def test_arguments_have_names(device, cache):
    x, z = device.array(np.arange(64, dtype="f4")), device.empty(64)
    stream = device.stream()
    for launch in (lambda: shift(x, z, y=1, n=64), lambda: shift(n=64, y=1, z=z, x=x),
                   lambda: shift[1](x, z, n=64, y=1), lambda: shift[..., stream](x, z=z, y=1, n=64),
                   lambda: shift.launch(x, z, 1, n=64, shires=1, stream=stream)):
        z.fill(0).wait(10)
        launch().wait(10)
        np.testing.assert_array_equal(z.to_numpy(), np.arange(64, dtype="f4") + 1)
    for text, launch in [("no parameter 'a': it takes x, z, y, n", lambda: shift(x, z, 1, a=2)),
                         ("no parameter 'shires'", lambda: shift(x, z, 1, 64, shires=1)),
                         ("'x' twice", lambda: shift(x, z, 1, 64, x=x)),
                         ("not given 'y', 'n'$", lambda: shift[1](x, z=z)),
                         ("not given 'n'", lambda: shift.launch(x, z, y=1, stream=stream)),
                         ("takes 4 arguments, not 6", lambda: shift(x, z, 1, 2, 3, y=1)),
                         ("takes 4 arguments", lambda: shift(x, z)),
                         ("which device", lambda: shift(x=1, z=2, y=3, n=4))]:
        with pytest.raises(TypeError, match=text):
            launch()


def test_signatures_need_types():
    with pytest.raises(TypeError, match="x of wrong has no type"):
        @et.kernel("")
        def wrong(x): ...
    with pytest.raises(TypeError, match="no parameter"):
        @et.kernel("")
        def worse(x: int): ...


def test_without_a_compiler_the_message_says_what_to_install(cache):
    code = f"import os, et; os.environ['PATH'] = ''\ntry: et.compile({SCALE!r})\n" \
        "except et.CompileError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "CROSS_COMPILE": ""} | {"PATH": ""})
    assert "gcc" in done.stdout and "install" in done.stdout
