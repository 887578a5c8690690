//! Memory that can be pinned.

use std::path::PathBuf;

use super::{Context, size};
use crate::{Check, Error, Finding, Function, memlock_limits_d, memlock_systemd};

/// Bytes of the huge pages that are counted.
const HUGE_PAGE: u64 = 2 << 20;
/// The kernel's name for their size.
const SIZE: &str = "hugepages-2048kB";

impl Context<'_> {
    pub(super) fn memlock(&self) -> Finding {
        let facts = self.host.facts();
        let need = self.needs.pinned_bytes;
        let plan = format!("{} to be pinned", size(need));
        match facts.memlock {
            _ if facts.capabilities.ipc_lock => {
                Finding::ok(Check::Memlock, format!("{plan}, not limited (CAP_IPC_LOCK)"))
            }
            None => Finding::ok(Check::Memlock, format!("{plan}, not limited")),
            Some(limit) if limit >= need => {
                Finding::ok(Check::Memlock, format!("{plan}, limit {}", size(limit)))
            }
            Some(limit) => {
                let line = memlock_limits_d(&self.host.limits_name(facts.uid), need);
                Finding::problem(Check::Memlock, format!("{plan}, limit {}", size(limit)))
                    .fix(format!("sudo prlimit --pid $$ --memlock={need} # for this shell"))
                    .fix(format!(
                        "echo '{line}' > /etc/security/limits.d/90-et.conf # then log in again"
                    ))
                    .fix(format!("systemctl edit UNIT # [Service] {}", memlock_systemd(need)))
            }
        }
    }

    pub(super) fn huge_pages(&self, function: &Function) -> Result<Finding, Error> {
        let check = Check::HugePages;
        let wanted = self.needs.pinned_bytes.div_ceil(HUGE_PAGE);
        let pools = self.pools()?;
        let Some(first) = pools.first() else {
            return Ok(Finding::skipped(check, "the kernel has no huge pages of 2 MiB"));
        };
        let near = function.numa_node;
        let is_near = |pool: &&Pool| near.is_none() || pool.node.is_none() || pool.node == near;
        let list: Vec<_> = pools
            .iter()
            .map(|pool| match pool.node {
                Some(node) => format!("node {node} has {} free", pool.free),
                None => format!("{} free", pool.free),
            })
            .collect();
        let place = match function.numa_node {
            Some(node) => format!("card at node {node}"),
            None => "card at no particular node".to_owned(),
        };
        let evidence = format!("{} of 2 MiB, {place}, {wanted} wanted", list.join(", "));
        let usable: u64 = pools.iter().filter(is_near).map(|pool| pool.free).sum();
        if usable >= wanted {
            return Ok(Finding::ok(check, evidence));
        }
        let file = pools.iter().find(is_near).unwrap_or(first).folder.join("nr_hugepages");
        let now = self.host.number(&file)?.unwrap_or(0).unsigned_abs();
        let total = now.saturating_add(wanted - usable);
        Ok(Finding::warning(check, format!("{evidence}: pinning will be slower"))
            .fix(format!("echo {total} > {}", file.display())))
    }

    /// Returns the pools of the nodes; a kernel without NUMA has one for all.
    fn pools(&self) -> Result<Vec<Pool>, Error> {
        const NODES: &str = "/sys/devices/system/node";
        let mut pools = Vec::new();
        for name in self.host.names(NODES)? {
            let Some(Ok(node)) = name.strip_prefix("node").map(str::parse) else { continue };
            pools.extend(self.pool(Some(node), format!("{NODES}/{name}/hugepages/{SIZE}").into())?);
        }
        if pools.is_empty() {
            pools.extend(self.pool(None, format!("/sys/kernel/mm/hugepages/{SIZE}").into())?);
        }
        Ok(pools)
    }

    fn pool(&self, node: Option<u32>, folder: PathBuf) -> Result<Option<Pool>, Error> {
        let free = self.host.number(folder.join("free_hugepages"))?.map(i64::unsigned_abs);
        Ok(free.map(|free| Pool { node, folder, free }))
    }
}

/// Huge pages of a node.
#[derive(Debug)]
struct Pool {
    node: Option<u32>,
    folder: PathBuf,
    /// Pages that are not in use.
    free: u64,
}
