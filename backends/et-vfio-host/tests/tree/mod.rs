//! Made-up hosts, and a kernel for them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::{Cell, RefCell};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use et_vfio_host::{Bdf, Capabilities, Facts, Host, Kernel, Owner};

/// Address of the card of every tree.
pub(crate) const CARD: &str = "0000:01:00.0";
/// Its folder.
pub(crate) const DEVICE: &str = "sys/bus/pci/devices/0000:01:00.0";
/// A bridge in the card's group.
pub(crate) const BRIDGE: &str = "0000:00:01.0";

/// Files of a host.
#[derive(Debug)]
pub(crate) struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    /// A host where everything is as it should be, with the card at `et-soc1`.
    pub(crate) fn unbound() -> Self {
        let tree = Self { folder: tempfile::tempdir().unwrap() };
        tree.function(CARD, "0x120000", "0x1e0a", "0xeb01");
        tree.function(BRIDGE, "0x060400", "0x8086", "0x1901");
        let mut resource = vec!["0x0 0x0 0x0"; 13];
        resource[0] = "0x0000004000000000 0x00000047ffffffff 0x000000000014220c";
        resource[2] = "0x00000000f0000000 0x00000000f0003fff 0x0000000000140204";
        tree.write(&format!("{DEVICE}/resource"), &resource.join("\n"));
        tree.write(&format!("{DEVICE}/numa_node"), "0\n");
        tree.write(&format!("{DEVICE}/power_state"), "D0\n");
        tree.write(&format!("{DEVICE}/reset_method"), "flr bus\n");
        tree.write(&format!("{DEVICE}/enable"), "0\n");
        for name in [CARD, BRIDGE] {
            let group = "../../../kernel/iommu_groups/12";
            tree.link(&format!("sys/bus/pci/devices/{name}/iommu_group"), group);
            tree.write(&format!("sys/kernel/iommu_groups/12/devices/{name}"), "");
        }
        tree.write("sys/kernel/iommu_groups/12/type", "DMA-FQ\n");
        tree.write("sys/class/iommu/dmar0", "");
        for driver in ["vfio-pci", "et-soc1", "pcieport"] {
            tree.write(&format!("sys/bus/pci/drivers/{driver}/unbind"), "");
        }
        tree.write("sys/bus/pci/drivers_probe", "");
        tree.driver(CARD, Some("et-soc1"));
        tree.driver(BRIDGE, Some("pcieport"));
        tree.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n");
        tree.write("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "N\n");
        tree.write("sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
        let pool = "sys/devices/system/node/node0/hugepages/hugepages-2048kB";
        tree.write(&format!("{pool}/free_hugepages"), "512\n");
        tree.write(&format!("{pool}/nr_hugepages"), "512\n");
        tree.write("dev/vfio/vfio", "");
        tree.write("dev/iommu", "");
        tree.write("proc/cmdline", "root=/dev/sda1 intel_iommu=on quiet\n");
        tree.write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n");
        tree.write("proc/interrupts", "  24:  1  0  IR-PCI-MSI-0000:00:1f.2  0-edge  ahci\n");
        tree.write("proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
        tree.write(
            "proc/self/mounts",
            "sysfs /sys sysfs rw,nosuid,nodev 0 0\n/dev/sda1 / ext4 rw 0 0\n",
        );
        tree.process(54321, "16777216000");
        tree.write(
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\nann:x:54321:54321::/home/ann:/bin/sh\n",
        );
        tree.write("etc/group", "root:x:0:\net:x:77:ann\n");
        tree
    }

    /// As [`Tree::unbound`], with the card at `vfio-pci`.
    pub(crate) fn bound() -> Self {
        let tree = Self::unbound();
        tree.driver(CARD, Some("vfio-pci"));
        tree.write(&format!("{DEVICE}/driver_override"), "vfio-pci\n");
        tree.nodes();
        tree
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// The host, seen by an ordinary user.
    pub(crate) fn host(&self) -> Host {
        Host::at(self.root()).with_facts(facts())
    }

    /// Takes away the nodes of the device, as a kernel before 6.1 has none.
    pub(crate) fn without_cdev(&self) {
        self.remove(&format!("{DEVICE}/vfio-dev"));
        self.remove("dev/vfio/devices");
        self.remove("dev/iommu");
    }

    pub(crate) fn nodes(&self) {
        self.write(&format!("{DEVICE}/vfio-dev/vfio0/dev"), "511:0\n");
        self.write("dev/vfio/devices/vfio0", "");
        self.write("dev/vfio/12", "");
    }

    /// A process with a file open.
    pub(crate) fn holder(&self, pid: u32, command: &str, file: &str) {
        self.write(&format!("proc/{pid}/cmdline"), &command.replace(' ', "\0"));
        self.link(&format!("proc/{pid}/fd/3"), file);
    }

    /// What the tree says about the process that asks.
    pub(crate) fn process(&self, uid: u32, memlock: &str) {
        let status = format!(
            "Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\nGroups:\t77\n\
             CapEff:\t0000000000000000\n"
        );
        self.write("proc/self/status", &status);
        let limits = format!("Max locked memory         {memlock}   {memlock}   bytes\n");
        self.write("proc/self/limits", &limits);
    }

    pub(crate) fn function(&self, name: &str, class: &str, vendor: &str, device: &str) {
        let folder = format!("sys/bus/pci/devices/{name}");
        self.write(&format!("{folder}/class"), class);
        self.write(&format!("{folder}/vendor"), vendor);
        self.write(&format!("{folder}/device"), device);
        self.write(&format!("{folder}/resource"), "");
        self.write(&format!("{folder}/driver_override"), "(null)\n");
        let id = |text: &str| u16::from_str_radix(&text[2..], 16).unwrap().to_le_bytes();
        let config = [id(vendor), id(device)].concat();
        std::fs::write(self.at(&format!("{folder}/config")), config).unwrap();
    }

    pub(crate) fn driver(&self, name: &str, driver: Option<&str>) {
        let link = format!("sys/bus/pci/devices/{name}/driver");
        self.remove(&link);
        if let Some(driver) = driver {
            self.link(&link, &format!("../../../bus/pci/drivers/{driver}"));
        }
    }

    pub(crate) fn driver_of(&self, name: &str) -> Option<String> {
        let link =
            std::fs::read_link(self.at(&format!("sys/bus/pci/devices/{name}/driver"))).ok()?;
        Some(link.file_name().unwrap().to_str().unwrap().to_owned())
    }

    pub(crate) fn at(&self, file: &str) -> PathBuf {
        self.root().join(file)
    }

    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.at(file)).unwrap()
    }

    /// Nodes are made so that everybody may open them, whoever runs the tests.
    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.at(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        self.mode(file, 0o666);
    }

    pub(crate) fn mode(&self, file: &str, mode: u32) {
        std::fs::set_permissions(self.at(file), PermissionsExt::from_mode(mode)).unwrap();
    }

    pub(crate) fn link(&self, file: &str, target: &str) {
        let path = self.at(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// Removes a file, a link or a folder, if it is there.
    pub(crate) fn remove(&self, file: &str) {
        let path = self.at(file);
        match path.symlink_metadata() {
            Ok(kind) if kind.is_dir() => std::fs::remove_dir_all(path).unwrap(),
            Ok(_) => std::fs::remove_file(path).unwrap(),
            Err(_) => {}
        }
    }

    /// Answers writes to pipes in place of sysfs files, in this order, as the kernel answers
    /// writes.
    ///
    /// A pipe cannot be opened for writing before it is opened for reading, so that the steps stay
    /// in order.
    pub(crate) fn answer(&self, files: &'static [&'static str]) {
        for file in files {
            self.remove(file);
            let mode = rustix::fs::Mode::from_raw_mode(0o666);
            let path = self.at(file);
            if !path.exists() {
                rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
                    .unwrap();
            }
        }
        let root = self.root().to_owned();
        std::thread::spawn(move || {
            let kernel = FakeKernel::at(&root);
            for file in files {
                let text = std::fs::read_to_string(root.join(file)).unwrap();
                kernel.take(file, &text).unwrap();
            }
        });
    }
}

/// An ordinary user who may lock 16 GB.
pub(crate) fn facts() -> Facts {
    Facts {
        uid: 54321,
        gids: vec![54321, 77],
        capabilities: Capabilities::default(),
        memlock: Some(16_777_216_000),
    }
}

pub(crate) fn card() -> Bdf {
    CARD.parse().unwrap()
}

/// Does to a tree what the kernel does to sysfs.
#[derive(Debug)]
pub(crate) struct FakeKernel {
    root: PathBuf,
    /// Every write: file below the root, and text.
    pub(crate) writes: RefCell<Vec<(String, String)>>,
    /// Every change of an owner.
    pub(crate) owners: RefCell<Vec<(String, Owner)>>,
    /// The write with this number fails.
    pub(crate) fail_at: Cell<Option<usize>>,
    /// A driver whose probe function fails.
    pub(crate) broken: Cell<Option<&'static str>>,
}

impl FakeKernel {
    pub(crate) fn new(tree: &Tree) -> Self {
        Self::at(tree.root())
    }

    fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            writes: RefCell::default(),
            owners: RefCell::default(),
            fail_at: Cell::default(),
            broken: Cell::default(),
        }
    }

    fn name(&self, file: &Path) -> String {
        file.strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned()
    }

    /// Changes the tree as a write to sysfs would.
    fn take(&self, name: &str, text: &str) -> io::Result<()> {
        let device = |bdf: &str| self.root.join("sys/bus/pci/devices").join(bdf);
        let driver_of = |bdf: &str| {
            let link = std::fs::read_link(device(bdf).join("driver")).ok()?;
            Some(link.file_name().unwrap().to_str().unwrap().to_owned())
        };
        let no_device = || io::Error::from_raw_os_error(19);
        if name.ends_with("/driver_override") {
            let text = if text == "\n" { "(null)\n".to_owned() } else { format!("{text}\n") };
            return std::fs::write(self.root.join(name), text);
        }
        if let Some(driver) = name.strip_prefix("sys/bus/pci/drivers/") {
            let driver = driver.strip_suffix("/unbind").unwrap();
            if driver_of(text).as_deref() != Some(driver) {
                return Err(no_device());
            }
            std::fs::remove_file(device(text).join("driver"))?;
            if driver == "vfio-pci" {
                std::fs::remove_dir_all(device(text).join("vfio-dev"))?;
                std::fs::remove_dir_all(self.root.join("dev/vfio/devices"))?;
                std::fs::remove_file(self.root.join("dev/vfio/12"))?;
            }
            return Ok(());
        }
        assert_eq!(name, "sys/bus/pci/drivers_probe");
        if driver_of(text).is_some() {
            return Ok(());
        }
        let wanted = std::fs::read_to_string(device(text).join("driver_override"))?;
        let wanted = match wanted.trim() {
            "(null)" | "" => "et-soc1",
            name => name,
        };
        if self.broken.get() == Some(wanted) {
            return Err(io::Error::from_raw_os_error(22));
        }
        std::os::unix::fs::symlink(format!("../../drivers/{wanted}"), device(text).join("driver"))?;
        if wanted == "vfio-pci" {
            for file in [device(text).join("vfio-dev/vfio0"), self.root.join("dev/vfio/devices")] {
                std::fs::create_dir_all(file)?;
            }
            std::fs::write(self.root.join("dev/vfio/devices/vfio0"), "")?;
            std::fs::write(self.root.join("dev/vfio/12"), "")?;
        }
        Ok(())
    }
}

impl Kernel for FakeKernel {
    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        let name = self.name(file);
        let number = self.writes.borrow().len();
        self.writes.borrow_mut().push((name.clone(), text.to_owned()));
        if self.fail_at.get() == Some(number) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.take(&name, text)
    }

    fn chown(&self, file: &Path, owner: Owner) -> io::Result<()> {
        self.owners.borrow_mut().push((self.name(file), owner));
        Ok(())
    }
}
