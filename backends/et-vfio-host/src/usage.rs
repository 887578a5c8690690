//! Whether the host uses a device.

use std::path::{Path, PathBuf};

use crate::{Bdf, Error, Function, Host};

/// Devices of a function lie a few folders below it.
const DEPTH: u32 = 8;

impl Host {
    /// Fails when the host would lose something with the device.
    pub(crate) fn refuse_in_use(&self, bdf: Bdf) -> Result<(), Error> {
        let in_use = |by: String, command: String| Err(Error::InUse { bdf, by, command });
        let folder = Function::folder(bdf);
        if self.number(folder.join("boot_vga"))? == Some(1) {
            let command = "systemctl isolate multi-user.target".to_owned();
            return in_use("it shows the console".to_owned(), command);
        }
        let mut found = Found::default();
        self.walk(&folder, DEPTH, &mut found)?;
        if let Some(name) = found.interfaces.first() {
            let command = format!("ip link set {name} down");
            return in_use(format!("network interface {name} is up"), command);
        }
        if let Some((disk, above)) = found.stacked.first() {
            return in_use(format!("{above} lies on {disk}"), format!("lsblk /dev/{disk}"));
        }
        // In both tables the first column is the node.
        for (table, verb, command) in [
            ("/proc/self/mounts", "is mounted", "umount"),
            ("/proc/swaps", "is swapped to", "swapoff"),
        ] {
            let text = self.text(table)?.unwrap_or_default();
            let sources = text.lines().filter_map(|line| line.split_whitespace().next());
            let mut used =
                sources.filter(|source| found.nodes.iter().any(|node| node == Path::new(source)));
            if let Some(node) = used.next() {
                return in_use(format!("{node} {verb}"), format!("{command} {node}"));
            }
        }
        self.refuse_held(bdf, &found.nodes)
    }

    /// Fails when a process has one of the nodes open: taking the device from its driver would wait
    /// for it.
    pub(crate) fn refuse_held(&self, bdf: Bdf, nodes: &[PathBuf]) -> Result<(), Error> {
        if nodes.is_empty() {
            return Ok(());
        }
        match self.holders(nodes)?.found.into_iter().next() {
            Some(holder) => Err(Error::Held { bdf, holder }),
            None => Ok(()),
        }
    }

    fn walk(&self, folder: &Path, depth: u32, found: &mut Found) -> Result<(), Error> {
        let is =
            |path: Option<&Path>, name: &str| path.and_then(Path::file_name) == Some(name.as_ref());
        let last =
            |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(event) = self.text(folder.join("uevent")).ok().flatten() {
            let names = event.lines().filter_map(|line| line.strip_prefix("DEVNAME="));
            found.nodes.extend(names.map(|name| Path::new("/dev").join(name)));
        }
        if is(folder.parent(), "net") {
            const UP: u32 = 1;
            let flags = folder.join("flags");
            if self.exists(&flags) && self.hex(flags)? & UP != 0 {
                found.interfaces.push(last(folder));
            }
        }
        for name in self.names(folder)? {
            let child = folder.join(&name);
            let below = || folder.file_name().is_some_and(|f| f == "holders");
            if below() {
                let disk = folder.parent().map(last).unwrap_or_default();
                found.stacked.push((disk, name));
                continue;
            }
            // Links lead out of the device.
            let kind = self.path(&child).symlink_metadata();
            if depth > 0 && kind.is_ok_and(|kind| kind.is_dir()) {
                self.walk(&child, depth - 1, found)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Found {
    /// Nodes of all devices of the function.
    nodes: Vec<PathBuf>,
    /// Network interfaces that are up.
    interfaces: Vec<String>,
    /// Disks and what lies on them, such as volumes.
    stacked: Vec<(String, String)>,
}
