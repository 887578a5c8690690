//! A prefix, moved after it was written, builds programs and kernels.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::{Options, run};
use crate::shell::capture;
use crate::tools::Done;

/// A kernel that adds 1 to numbers, and prints.
const KERNEL: &str = "#include <et/device.h>\n#include <string.h>\n\
    struct args { uint32_t *x; uint64_t n; };\n\
    int64_t et_task(const struct args *a, const struct kernel_environment *e, uint64_t part,\n\
                    uint64_t parts)\n\
    {\n\
        struct et_range mine = et_part(a->x, 4, a->n, part, parts);\n\
        (void)e;\n\
        for (uint64_t i = mine.begin; i < mine.end; i++)\n\
            a->x[i] += 1;\n\
        et_printf(\"%u\", (unsigned)strlen(\"text\"));\n\
        return 0;\n\
    }\n\
    ET_TASK_ENTRY;\n";

/// What a project for the vendor's platform does, and one with the SDK's start-up code.
const PROJECT: &str = "cmake_minimum_required(VERSION 3.18)\n\
    project(kernels C CXX)\n\
    list(APPEND CMAKE_PREFIX_PATH $ENV{ET_PLATFORM}/lib/cmake)\n\
    list(APPEND CMAKE_MODULE_PATH $ENV{ET_PLATFORM}/lib/cmake)\n\
    find_package(et REQUIRED)\n\
    add_executable(host host.c)\n\
    target_link_libraries(host PRIVATE et::et)\n\
    find_package(runtime REQUIRED)\n\
    foreach(kind etrt etrt_static)\n\
        add_executable(${kind} theirs.cpp)\n\
        target_link_libraries(${kind} PRIVATE runtime::${kind} deviceLayer::deviceLayer)\n\
    endforeach()\n\
    include(aifoundry-utils/ProjectFunctions)\n\
    add_subdirectory(device)\n";
const DEVICE: &str = "include($ENV{ET_PLATFORM}/lib/cmake/riscv64-ec-toolchain.cmake)\n\
    list(APPEND CMAKE_MODULE_PATH $ENV{ET_PLATFORM}/lib/cmake/cmake-modules)\n\
    include(DeviceUtils)\n\
    find_package(et-common-libs REQUIRED)\n\
    find_package(esperantoTrace REQUIRED)\n\
    add_riscv_executable(ours)\n\
    target_sources(ours.elf PRIVATE k.c)\n\
    target_compile_options(ours.elf PRIVATE -O2)\n\
    set(LINKER_SCRIPT ${CMAKE_CURRENT_SOURCE_DIR}/theirs.ld)\n\
    add_riscv_executable(theirs)\n\
    target_sources(theirs.elf PRIVATE k.c start.S)\n\
    target_link_libraries(theirs.elf PRIVATE et-common-libs::cm-umode)\n\
    target_link_options(theirs.elf PRIVATE -Wl,--entry=_start)\n\
    target_compile_options(theirs.elf PRIVATE\n\
        $<$<COMPILE_LANGUAGE:C>:-O2;-mcmodel=medany;-march=rv64imf;-mabi=lp64f>)\n";
const SCRIPT: &str = "SECTIONS {\n\
    . = 0x8005801000;\n\
    .text : { *(.text.init) *(.text .text.*) }\n\
    .rodata : { *(.rodata .rodata.* .srodata .srodata.*) }\n\
    .data : { *(.data .data.*) *(.sdata .sdata.*) PROVIDE(__global_pointer$ = . + 0x800); }\n}\n";
const START: &str = ".section .text.init, \"ax\", @progbits\n.global _start\n_start:\n\
    call entry_point\n li a2, 0\n mv a1, a0\n li a0, 8\n ecall\n";
const HOST: &str = "#include <et.h>\nint main(void) { return et_init(ET_ABI_VERSION); }\n";

/// A program for the original runtime: fills memory, and reads it back.
const THEIRS: &str = "#include <device-layer/IDeviceLayer.h>\n#include <runtime/IRuntime.h>\n\
    int main()\n\
    {\n\
        std::shared_ptr<dev::IDeviceLayer> layer = dev::IDeviceLayer::createPcieDeviceLayer();\n\
        const auto runtime = rt::IRuntime::create(layer);\n\
        const auto device = runtime->getDevices().at(0);\n\
        const auto stream = runtime->createStream(device);\n\
        std::byte *place = runtime->mallocDevice(device, 5);\n\
        std::byte there[5] = {std::byte{1}, std::byte{2}, std::byte{3}}, here[5] = {};\n\
        runtime->memcpyHostToDevice(stream, there, place, 5);\n\
        runtime->memcpyDeviceToHost(stream, place, here, 5);\n\
        return runtime->waitForStream(stream) && here[2] == there[2] ? 0 : 1;\n\
    }\n";

/// Checks a prefix.
pub(crate) fn check() -> anyhow::Result<Done> {
    let folder = tempfile::tempdir()?;
    let options = Options {
        prefix: Some("/opt/et".into()),
        destdir: Some(folder.path().join("staged")),
        deb: None,
        profile: "dev".to_owned(),
    };
    run(&options)?;
    let prefix = folder.path().join("moved here");
    std::fs::rename(folder.path().join("staged/opt/et"), &prefix)?;
    let project = folder.path().join("project");
    std::fs::create_dir_all(project.join("device"))?;
    let files = [
        ("CMakeLists.txt", PROJECT),
        ("host.c", HOST),
        ("theirs.cpp", THEIRS),
        ("device/CMakeLists.txt", DEVICE),
        ("device/k.c", KERNEL),
        ("device/start.S", START),
        ("device/theirs.ld", SCRIPT),
    ];
    for (name, text) in files {
        std::fs::write(project.join(name), text)?;
    }
    if !is_there("cc") || !is_there("riscv64-unknown-elf-gcc") {
        return Ok(Done::Skipped("there are no compilers for the host and the device".to_owned()));
    }
    let inside = |program: &str| {
        let mut command = Command::new(program);
        command.current_dir(&project);
        command
    };
    let library = prefix.join("lib");
    let mut host = inside("cc");
    host.args(["-Wall", "-Werror", "host.c", "-o", "host"]);
    host.arg("-I").arg(prefix.join("include")).arg("-L").arg(&library).arg("-let");
    good(host.arg(format!("-Wl,-rpath,{}", library.display())))?;
    good(&mut inside("./host"))?;
    let et = prefix.join("bin/et");
    let mut compiler = inside(et.to_str().context("a path that is no text")?);
    compiler.args(["cc", "--check", "-O2", "-Wall", "-Wextra", "-Werror", "device/k.c"]);
    good(compiler.args(["-o", "k.elf"]))?;
    runs(&et, &project.join("k.elf"))?;
    if !is_there("cmake") {
        return Ok(Done::Skipped(
            "cmake is not installed; the rest of the prefix works".to_owned(),
        ));
    }
    let mut configure = inside("cmake");
    good(configure.args(["-S", ".", "-B", "build"]).env("ET_PLATFORM", &prefix))?;
    good(inside("cmake").args(["--build", "build"]))?;
    for program in ["build/host", "build/etrt", "build/etrt_static"] {
        good(inside(program).env("ET_DEVICE", "sim:shires=1,dram=1GiB"))?;
    }
    for name in ["ours", "theirs"] {
        let elf = project.join(format!("build/device/{name}.elf"));
        good(Command::new(&et).args(["cc", "--check"]).arg(&elf))?;
        runs(&et, &elf)?;
    }
    if !is_there("groff") {
        return Ok(Done::Skipped(
            "groff is not installed; but for manual pages the prefix works".to_owned(),
        ));
    }
    pages(&prefix.join("share/man/man1"))?;
    Ok(Done::Checked)
}

/// Has the manual pages set: what is wrong with one is a warning.
fn pages(folder: &Path) -> anyhow::Result<()> {
    for page in std::fs::read_dir(folder)? {
        let mut groff = Command::new("groff");
        groff.args(["-Kutf8", "-man", "-ww", "-z", "-Tutf8"]).arg(page?.path());
        let warnings = capture(&mut groff)?.stderr;
        ensure!(warnings.is_empty(), "{groff:?}: {}", String::from_utf8_lossy(&warnings));
    }
    Ok(())
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs the kernel on numbers, and looks at them.
fn runs(et: &Path, elf: &Path) -> anyhow::Result<()> {
    let file = elf.with_extension("npy");
    // Format 1.0, whose header has 80 bytes here.
    let shape = "{'descr': '<u4', 'fortran_order': False, 'shape': (4,), }";
    let header = [b"\x93NUMPY\x01\x00\x46\x00", format!("{shape:<69}\n").as_bytes()].concat();
    let numbers = |first: u32| (first..first + 4).flat_map(u32::to_le_bytes).collect::<Vec<_>>();
    std::fs::write(&file, [header, numbers(10)].concat())?;
    let mut command = Command::new(et);
    command.args(["--device", "sim:shires=2,dram=1GiB", "run"]).arg(elf);
    command.args(["--arg", &format!("inout:{}", file.display()), "--arg", "u64:4"]);
    good(&mut command)?;
    let found = std::fs::read(&file)?;
    ensure!(found.ends_with(&numbers(11)), "{}: wrong numbers: {found:?}", elf.display());
    Ok(())
}

fn good(command: &mut Command) -> anyhow::Result<()> {
    let output = capture(command)?;
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?}: {}\n{said}\n{errors}", output.status);
    Ok(())
}
