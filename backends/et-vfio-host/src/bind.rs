//! Handing a card to `vfio-pci`, and back.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::checks::NO_IOMMU;
use crate::node::candidates;
use crate::pci::is_vfio_driver;
use crate::state::{self, Before};
use crate::{Bdf, Error, FileKernel, Function, Host, Kernel, Mode, Owner};

/// The driver of VFIO for PCI functions.
const DRIVER: &str = "vfio-pci";
/// Makes the kernel look for a driver for one device.
const PROBE: &str = "/sys/bus/pci/drivers_probe";

/// How to bind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct BindOptions {
    owner: Option<Owner>,
    any_device: bool,
    settle: Duration,
}

impl Default for BindOptions {
    fn default() -> Self {
        Self { owner: None, any_device: false, settle: Duration::from_secs(2) }
    }
}

impl BindOptions {
    /// Gives the nodes to a user.
    pub fn owner(self, owner: Owner) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// Binds devices that are no ET-SoC-1, too.
    pub fn any_device(self) -> Self {
        Self { any_device: true, ..self }
    }

    /// Waits so long for the driver and the nodes, which the kernel may bring later.
    pub fn settle(self, settle: Duration) -> Self {
        Self { settle, ..self }
    }
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// File of the host.
    pub file: PathBuf,
    /// Text written to it.
    pub write: String,
    /// What for.
    pub why: String,
}

impl Step {
    fn new(file: impl Into<PathBuf>, write: impl Into<String>, why: impl Into<String>) -> Self {
        Self { file: file.into(), write: write.into(), why: why.into() }
    }
}

/// The writes that change the driver of a function, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Plan {
    /// The function.
    pub bdf: Bdf,
    /// Driver it has.
    pub from: Option<String>,
    /// Driver it should have; `None` leaves that to the kernel when [`Plan::is_known`] is false,
    /// and is no driver otherwise.
    pub to: Option<String>,
    /// Whether it is known what driver the function should have.
    pub is_known: bool,
    /// The writes; none when there is nothing to do.
    pub steps: Vec<Step>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The steps, all done.
    pub plan: Plan,
    /// Driver that has the function now.
    pub driver: Option<String>,
    /// How to open it now, once bound.
    pub mode: Option<Mode>,
    /// Nodes that were given to the owner.
    pub given: Vec<PathBuf>,
}

impl Host {
    /// Returns what [`Host::bind`] would write.
    ///
    /// # Errors
    /// What forbids it: [`Error::NoDevice`], [`Error::NotACard`], [`Error::NoVfioDriver`],
    /// [`Error::NoIommu`], [`Error::NotViable`], [`Error::VirtualFunctions`], [`Error::InUse`],
    /// [`Error::Held`]; [`Error::Read`] and [`Error::Malformed`] for the files that tell.
    pub fn plan_bind(&self, bdf: Bdf, options: &BindOptions) -> Result<Plan, Error> {
        let function = self.function(bdf)?;
        let Function { vendor, device, .. } = function;
        if !function.is_card() && !options.any_device {
            return Err(Error::NotACard { bdf, vendor, device });
        }
        let mut plan = Plan {
            bdf,
            from: function.driver.clone(),
            to: Some(DRIVER.to_owned()),
            is_known: true,
            steps: Vec::new(),
        };
        if function.is_vfio() {
            plan.to.clone_from(&plan.from);
            return Ok(plan);
        }
        self.refuse(&function)?;
        let before = Before {
            driver: function.driver.clone(),
            driver_override: function.driver_override.filter(|name| name != DRIVER),
        };
        let folder = Function::folder(bdf);
        let address = bdf.to_string();
        // An earlier bind that was cut short knows better what the card was.
        let earlier = self.before(bdf)?.filter(|_| before.driver.is_none());
        if earlier.is_none() {
            let why = "remembers what the card was, for the way back";
            plan.steps.push(Step::new(state::file(bdf), before.to_text(), why));
        }
        let why = "lets no other driver take the card";
        plan.steps.push(Step::new(folder.join("driver_override"), DRIVER, why));
        if let Some(driver) = &before.driver {
            let file = format!("/sys/bus/pci/drivers/{driver}/unbind");
            plan.steps.push(Step::new(file, &address, format!("takes the card from {driver}")));
        }
        plan.steps.push(Step::new(PROBE, &address, "gives the card to vfio-pci"));
        Ok(plan)
    }

    /// Hands a function to `vfio-pci`; does nothing when it has it.
    ///
    /// When a step fails, the earlier ones are undone.
    ///
    /// # Errors
    /// As [`Host::plan_bind`]; [`Error::Locked`]; [`Error::Write`] and [`Error::Blocked`] for a
    /// step; [`Error::WrongDriver`] when the kernel chose another; [`Error::NotUndone`];
    /// [`Error::NoNode`] and [`Error::Chown`] when only the owner could not be set.
    pub fn bind(&self, bdf: Bdf, options: &BindOptions) -> Result<Change, Error> {
        self.bind_with(bdf, options, &FileKernel::default())
    }

    /// As [`Host::bind`], with another kernel.
    ///
    /// # Errors
    /// As [`Host::bind`].
    pub fn bind_with(
        &self,
        bdf: Bdf,
        options: &BindOptions,
        kernel: &dyn Kernel,
    ) -> Result<Change, Error> {
        let mut plan = self.plan_bind(bdf, options)?;
        if !plan.steps.is_empty() {
            let _lock = self.lock()?;
            // What was true before the lock may have changed.
            plan = self.plan_bind(bdf, options)?;
            let before = self.function(bdf)?;
            if let Err(source) = self.make(&plan, options.settle, kernel) {
                return Err(match self.undo(&plan, &before, kernel) {
                    Ok(()) => source,
                    Err(undo) => {
                        Error::NotUndone { undo: Box::new(undo), source: Box::new(source) }
                    }
                });
            }
        }
        let given = match options.owner {
            Some(owner) => self.give(bdf, owner, options.settle, kernel)?,
            None => Vec::new(),
        };
        self.outcome(plan, given)
    }

    /// Returns what [`Host::unbind`] would write.
    ///
    /// # Errors
    /// [`Error::NoDevice`]; [`Error::Held`]; [`Error::Read`] and [`Error::Malformed`] for the files
    /// that tell.
    pub fn plan_unbind(&self, bdf: Bdf) -> Result<Plan, Error> {
        let function = self.function(bdf)?;
        let before = self.before(bdf)?;
        let mut plan = Plan {
            bdf,
            from: function.driver.clone(),
            to: before.as_ref().map_or_else(|| function.driver.clone(), |b| b.driver.clone()),
            is_known: before.is_some(),
            steps: Vec::new(),
        };
        let folder = Function::folder(bdf);
        let address = bdf.to_string();
        if function.driver_override.as_deref() == Some(DRIVER) {
            // An empty line removes it; an empty write would not reach the kernel.
            let old = before.as_ref().and_then(|before| before.driver_override.clone());
            let text = old.unwrap_or_else(|| "\n".to_owned());
            let why = "lets other drivers take the card";
            plan.steps.push(Step::new(folder.join("driver_override"), text, why));
        }
        if let Some(driver) = function.driver.as_ref().filter(|_| function.is_vfio()) {
            self.refuse_held(bdf, &self.nodes(&function)?)?;
            if !plan.is_known {
                plan.to = None;
            }
            let file = format!("/sys/bus/pci/drivers/{driver}/unbind");
            plan.steps.push(Step::new(file, &address, format!("takes the card from {driver}")));
        }
        let was_driverless = plan.is_known && plan.to.is_none();
        let needs_driver = function.is_vfio() || function.driver.is_none();
        let has_reason = before.is_some() || !plan.steps.is_empty();
        if needs_driver && has_reason && !was_driverless {
            plan.steps.push(Step::new(PROBE, &address, "lets the kernel find its driver"));
        }
        Ok(plan)
    }

    /// Gives a function back to the driver it had; does nothing when no VFIO driver has it.
    ///
    /// # Errors
    /// As [`Host::plan_unbind`]; [`Error::Locked`]; [`Error::Write`] and [`Error::Blocked`] for a
    /// step; [`Error::WrongDriver`] when the old driver did not take it.
    pub fn unbind(&self, bdf: Bdf) -> Result<Change, Error> {
        self.unbind_with(bdf, &BindOptions::default(), &FileKernel::default())
    }

    /// As [`Host::unbind`], with another kernel; of the options only the waiting time counts.
    ///
    /// # Errors
    /// As [`Host::unbind`].
    pub fn unbind_with(
        &self,
        bdf: Bdf,
        options: &BindOptions,
        kernel: &dyn Kernel,
    ) -> Result<Change, Error> {
        let mut plan = self.plan_unbind(bdf)?;
        if !plan.steps.is_empty() {
            let _lock = self.lock()?;
            plan = self.plan_unbind(bdf)?;
            self.make(&plan, options.settle, kernel)?;
            self.forget(bdf)?;
        }
        self.outcome(plan, Vec::new())
    }

    /// Fails when the function must not be taken from its driver, or VFIO could not use it.
    fn refuse(&self, function: &Function) -> Result<(), Error> {
        let bdf = function.bdf;
        if !self.exists(format!("/sys/bus/pci/drivers/{DRIVER}")) {
            return Err(Error::NoVfioDriver);
        }
        match function.group {
            None if self.text(NO_IOMMU)?.as_deref() != Some("Y") => {
                return Err(Error::NoIommu { bdf });
            }
            None => {}
            Some(group) => {
                let members = self.group(group)?.foreign(bdf);
                if !members.is_empty() {
                    return Err(Error::NotViable { bdf, group, members });
                }
            }
        }
        if function.virtual_functions > 0 {
            return Err(Error::VirtualFunctions { bdf, count: function.virtual_functions });
        }
        self.refuse_in_use(bdf)
    }

    fn make(&self, plan: &Plan, settle: Duration, kernel: &dyn Kernel) -> Result<(), Error> {
        let bdf = plan.bdf;
        for step in &plan.steps {
            if step.file == state::file(bdf) {
                self.remember(bdf, &step.write)?;
            } else {
                self.write(step, kernel)?;
            }
        }
        let driver = || self.link_name(Function::folder(bdf).join("driver"));
        let is_there = |found: &Option<String>| match plan.is_known {
            true => *found == plan.to,
            false => !found.as_deref().is_some_and(is_vfio_driver),
        };
        let found = wait(settle, || driver().map(|found| (is_there(&found), found)))?;
        if is_there(&found) {
            return Ok(());
        }
        Err(Error::WrongDriver { bdf, found, wanted: plan.to.clone() })
    }

    fn write(&self, step: &Step, kernel: &dyn Kernel) -> Result<(), Error> {
        let file = step.file.clone();
        kernel.write(&self.path(&file), &step.write).map_err(|source| match source.kind() {
            io::ErrorKind::TimedOut => Error::Blocked { file },
            _ => Error::Write { file, text: step.write.clone(), source },
        })
    }

    /// Makes a function what it was, as far as it is not.
    fn undo(&self, plan: &Plan, before: &Function, kernel: &dyn Kernel) -> Result<(), Error> {
        let bdf = before.bdf;
        let address = bdf.to_string();
        let why = "goes back";
        let now = self.function(bdf)?;
        if now.driver_override != before.driver_override {
            let text = before.driver_override.clone().unwrap_or_else(|| "\n".to_owned());
            let file = Function::folder(bdf).join("driver_override");
            self.write(&Step::new(file, text, why), kernel)?;
        }
        if now.driver != before.driver {
            if let Some(driver) = &now.driver {
                let file = format!("/sys/bus/pci/drivers/{driver}/unbind");
                self.write(&Step::new(file, &address, why), kernel)?;
            }
            if before.driver.is_some() {
                self.write(&Step::new(PROBE, &address, why), kernel)?;
            }
        }
        let found = self.link_name(Function::folder(bdf).join("driver"))?;
        if found != before.driver {
            // What it was stays remembered, so that unbinding can try again.
            return Err(Error::WrongDriver { bdf, found, wanted: before.driver.clone() });
        }
        // What an earlier bind remembered is still needed.
        if plan.steps.iter().any(|step| step.file == state::file(bdf)) {
            self.forget(bdf)?;
        }
        Ok(())
    }

    /// Gives the nodes of a bound function to a user.
    fn give(
        &self,
        bdf: Bdf,
        owner: Owner,
        settle: Duration,
        kernel: &dyn Kernel,
    ) -> Result<Vec<PathBuf>, Error> {
        let nodes = wait(settle, || {
            let nodes = self.nodes(&self.function(bdf)?)?;
            let present: Vec<_> = nodes.into_iter().filter(|node| self.exists(node)).collect();
            Ok((!present.is_empty(), present))
        })?;
        if nodes.is_empty() {
            return Err(Error::NoNode { bdf });
        }
        for node in &nodes {
            let chown = kernel.chown(&self.path(node), owner);
            chown.map_err(|source| Error::Chown { file: node.clone(), source })?;
        }
        Ok(nodes)
    }

    /// Returns the nodes a function has while VFIO has it.
    fn nodes(&self, function: &Function) -> Result<Vec<PathBuf>, Error> {
        let group = function.group.map(|number| self.group(number)).transpose()?;
        let modes = candidates(function, group.as_ref());
        Ok(modes.iter().map(Mode::node).map(Path::to_owned).collect())
    }

    fn outcome(&self, plan: Plan, given: Vec<PathBuf>) -> Result<Change, Error> {
        let function = self.function(plan.bdf)?;
        let group = function.group.map(|number| self.group(number)).transpose()?;
        let mode = if function.is_vfio() { self.mode(&function, group.as_ref()) } else { None };
        Ok(Change { plan, driver: function.driver, mode, given })
    }
}

/// Looks until the answer is final or the time is over, and returns the last one.
fn wait<T>(time: Duration, look: impl Fn() -> Result<(bool, T), Error>) -> Result<T, Error> {
    const PAUSE: Duration = Duration::from_millis(5);
    let start = Instant::now();
    loop {
        let (is_final, answer) = look()?;
        let Some(left) = time.checked_sub(start.elapsed()).filter(|_| !is_final) else {
            return Ok(answer);
        };
        // Sysfs cannot be waited on; a spurious return only looks again.
        std::thread::park_timeout(PAUSE.min(left));
    }
}
