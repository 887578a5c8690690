//! What is run in which machine. Each boot is a fresh guest with a fresh simulator.

use std::time::Duration;

use super::boot::{Action, Reaction};
use super::kernel::Kernel;
use super::qemu::{Device, Iommu, Machine, Release};

// Limits end what hangs: beside other checks on a slow machine boots take ten times as long.
/// Limit of a boot; one takes about three seconds.
const LIMIT: Duration = Duration::from_secs(240);
/// Limit of a boot in which the card is lost: the kernel alone waits 71 seconds for its reset.
const LOSS_LIMIT: Duration = Duration::from_secs(360);
/// Limit of a boot in which the whole suite runs, which takes a minute or two.
const SUITE_LIMIT: Duration = Duration::from_secs(1500);

/// One way from a program to the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    pub(crate) name: &'static str,
    pub(crate) stage: Stage,
}

/// Where a layer's programs run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// Beside the simulator. In a command, `{socket}` is where it listens.
    Host { commands: &'static [&'static str] },
    /// In guests.
    Guest { qemu: Release, kernel: Kernel, machine: Machine, boots: &'static [Boot] },
}

/// One guest's work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boot {
    pub(crate) name: &'static str,
    /// Run in this order; the first word is a program of the workspace.
    pub(crate) commands: &'static [&'static str],
    /// Fewer checks than these are a failure: some did not run.
    pub(crate) at_least: u64,
    pub(crate) limit: Duration,
    pub(crate) reactions: &'static [Reaction],
    /// More arguments of the simulator.
    pub(crate) simulator: &'static [&'static str],
    /// Variables of the commands, `NAME=value`.
    pub(crate) environment: &'static [&'static str],
}

impl Boot {
    const fn new(name: &'static str, at_least: u64, commands: &'static [&'static str]) -> Self {
        Self {
            name,
            commands,
            at_least,
            limit: LIMIT,
            reactions: &[],
            simulator: &[],
            environment: &[],
        }
    }

    /// The host acts when the guest says so.
    const fn with(mut self, reactions: &'static [Reaction]) -> Self {
        self.reactions = reactions;
        self
    }

    /// The card is lost in this boot.
    ///
    /// BARs that are mapped stay what they were when the card is gone, so its loss would not show
    /// in them.
    const fn of_loss(mut self) -> Self {
        self.limit = LOSS_LIMIT;
        self.reactions = ON_KILL;
        self.simulator = &["--trap", "--open-at-once"];
        self
    }

    /// The whole suite, every place of graphs included; programs are emulated some fifty times
    /// slower than they run.
    const fn long(mut self) -> Self {
        self.limit = SUITE_LIMIT;
        self.simulator = CPU_ACCESS;
        self
    }
}

/// The registers let the host use device memory.
pub(crate) const CPU_ACCESS: &[&str] = &["--board", "cpu-access=yes"];

const ON_KILL: &[Reaction] =
    &[Reaction { marker: "READY-FOR-KILL", action: Action::KillSimulator }];
const ON_AER: &[Reaction] = &[Reaction {
    marker: "READY-FOR-AER",
    action: Action::Monitor("pcie_aer_inject_error rp0 POISON_TLP"),
}];

const CARD: Machine =
    Machine { device: Device::Card, iommu: Iommu::Translating, cpu: "qemu64", cmdline: "" };
const CARD_BARE: Machine = Machine {
    iommu: Iommu::Missing,
    cmdline: "vfio.enable_unsafe_noiommu_mode=1 hugepages=64",
    ..CARD
};
const EDU: Machine = Machine { device: Device::Edu, ..CARD };

/// For programs of others, which are not made for the least of processors.
pub(crate) const CARD_BEST: Machine = Machine { cpu: "max", ..CARD };
/// An operator of llama.cpp's backend, by the test of its own.
pub(crate) const OPERATOR: Boot = Boot {
    simulator: &["--board", "memory=private"],
    // Without it, a runtime that finds no card takes a simulated one of its own.
    environment: &["ET_DEVICE=vfio:0000:01:00.0"],
    ..Boot::new("operator", 1, &["test-backend-ops test -b ET0 -o MEAN"])
};

/// Every layer, in the order in which they are run.
pub(crate) const LAYERS: &[Layer] = &[
    Layer {
        name: "selftest",
        stage: Stage::Host { commands: &["et-conformance --device vfio-user:{socket}"] },
    },
    Layer {
        name: "group",
        stage: Stage::Guest {
            qemu: Release::Backports,
            kernel: Kernel::Cloud,
            machine: CARD,
            boots: &[
                Boot::new("probe", 28, &["et-vm-probe group 0000:01:00.0 basic"]),
                Boot::new("ioctls", 36, &["et-vm-ioctls 0000:01:00.0"]),
                Boot::new("aer", 5, &["et-vm-probe group 0000:01:00.0 aer"]).with(ON_AER),
                Boot::new("remove", 7, &["et-vm-probe group 0000:01:00.0 remove"]),
                Boot::new("kill", 3, &["et-vm-probe group 0000:01:00.0 kill"]).of_loss(),
                Boot::new("removal", 5, &["et-vm-loss 0000:01:00.0,mode=group removal"]),
                Boot::new("error", 5, &["et-vm-loss 0000:01:00.0,mode=group error"]).with(ON_AER),
                Boot::new(
                    "et",
                    9,
                    &[
                        "et list",
                        "et doctor 0000:01:00.0",
                        "et unbind 0000:01:00.0",
                        "et bind 0000:01:00.0",
                        "et --json doctor 0000:01:00.0",
                        "et --device vfio:0000:01:00.0 info",
                        "et --device vfio:0000:01:00.0 demo",
                        "et --device vfio:0000:01:00.0,mode=group run /kernels/memset.elf \
                         --arg out:/tmp/z.npy:f32[16384] --arg u64:64 --arg u64:65536",
                        "et --device vfio:0000:01:00.0,mode=group run /kernels/saxpy.elf \
                         --arg in:/tmp/z.npy --arg inout:/tmp/z.npy --arg f32:2 --arg u64:16384",
                        "et --device vfio:0000:01:00.0 demo",
                    ],
                ),
                Boot::new(
                    "conformance",
                    131,
                    &["et-conformance --device vfio:0000:01:00.0 --scale 5"],
                )
                .long(),
            ],
        },
    },
    Layer {
        name: "cdev",
        stage: Stage::Guest {
            qemu: Release::Backports,
            kernel: Kernel::Own,
            machine: CARD,
            boots: &[
                Boot::new(
                    "probe",
                    56,
                    // The modes exclude each other only while one of them has the device.
                    &[
                        "et-vm-probe cdev 0000:01:00.0 basic",
                        "et-vm-probe group 0000:01:00.0 basic",
                    ],
                ),
                Boot::new("aer", 5, &["et-vm-probe cdev 0000:01:00.0 aer"]).with(ON_AER),
                Boot::new("remove", 7, &["et-vm-probe cdev 0000:01:00.0 remove"]),
                Boot::new("kill", 3, &["et-vm-probe cdev 0000:01:00.0 kill"]).of_loss(),
                Boot::new("removal", 5, &["et-vm-loss 0000:01:00.0,mode=cdev removal"]),
                Boot::new("error", 5, &["et-vm-loss 0000:01:00.0,mode=cdev error"]).with(ON_AER),
                Boot::new(
                    "et",
                    4,
                    &[
                        "et doctor 0000:01:00.0",
                        "et --device vfio:0000:01:00.0,mode=cdev demo",
                        "et --device vfio:0000:01:00.0,mode=group demo",
                        "et --device vfio:0000:01:00.0 demo",
                    ],
                ),
                Boot::new(
                    "conformance",
                    131,
                    &["et-conformance --device vfio:0000:01:00.0,mode=cdev --scale 5"],
                )
                .long(),
            ],
        },
    },
    Layer {
        name: "noiommu",
        stage: Stage::Guest {
            qemu: Release::Backports,
            kernel: Kernel::Own,
            machine: CARD_BARE,
            boots: &[
                Boot::new("probe", 22, &["et-vm-probe noiommu 0000:01:00.0 basic"]),
                Boot::new("et", 1, &["et --device vfio:0000:01:00.0,mode=noiommu demo"]),
                Boot::new(
                    "conformance",
                    131,
                    &["et-conformance --device vfio:0000:01:00.0,mode=noiommu --scale 5 --lacks access-control \
                      --skip hal::wait::a_wait_for_nothing_ends_by_its_timeout=waits-look-without-interrupts"],
                )
                .long(),
            ],
        },
    },
    Layer {
        name: "edu",
        stage: Stage::Guest {
            qemu: Release::Stable,
            kernel: Kernel::Cloud,
            machine: EDU,
            boots: &[
                Boot::new("edu", 69, &["et-vm-edu group 0000:01:00.0"]),
                Boot::new("hal", 31, &["et-vm-hal 0000:01:00.0,mode=group"]),
            ],
        },
    },
    Layer {
        name: "edu-cdev",
        stage: Stage::Guest {
            qemu: Release::Stable,
            kernel: Kernel::Own,
            machine: EDU,
            boots: &[
                Boot::new("edu", 69, &["et-vm-edu cdev 0000:01:00.0"]),
                Boot::new("hal", 31, &["et-vm-hal 0000:01:00.0,mode=cdev"]),
            ],
        },
    },
];

#[cfg(test)]
mod tests {
    use super::{LAYERS, Stage};

    /// Those of the workspace that layers may run.
    const PROGRAMS: [&str; 8] = [
        "et",
        "et-conformance",
        "et-simd",
        "et-vm-edu",
        "et-vm-hal",
        "et-vm-ioctls",
        "et-vm-loss",
        "et-vm-probe",
    ];

    #[test]
    fn layers_have_names_of_their_own_and_known_programs() {
        for (index, layer) in LAYERS.iter().enumerate() {
            assert!(LAYERS[..index].iter().all(|other| other.name != layer.name), "{}", layer.name);
            let commands: Vec<_> = match layer.stage {
                Stage::Host { commands } => commands.to_vec(),
                Stage::Guest { boots, .. } => {
                    assert!(!boots.is_empty(), "{}", layer.name);
                    for (index, boot) in boots.iter().enumerate() {
                        // Logs are named after them.
                        assert!(boots[..index].iter().all(|other| other.name != boot.name));
                        assert!(boot.at_least != 0, "{} may check nothing", boot.name);
                    }
                    boots.iter().flat_map(|boot| boot.commands).copied().collect()
                }
            };
            for command in commands {
                let known = command.split(' ').next().is_some_and(|name| PROGRAMS.contains(&name));
                assert!(known, "{command}: there is no such program");
            }
        }
    }
}
