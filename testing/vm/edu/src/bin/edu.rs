//! `et-vm-edu MODE ADDRESS`: drives QEMU's `edu` through the kernel's VFIO.
//!
//! Neither the device nor the kernel knows anything of ours, so a mistake that our driver and our
//! simulator share shows here.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use et_vm_edu::{
    Access, BUS_MASTER, Checks, Event, Function, Kernel, Mapping, Memory, Mode, Pages, Sysfs,
    index, set_bus_master,
};

/// Limit of everything that the device does; a transfer takes it a tenth of a second.
const LIMIT: Duration = Duration::from_secs(10);
/// The device's registers.
const IDENTITY: usize = 0x00;
const LIVENESS: usize = 0x04;
const FACTORIAL: usize = 0x08;
const STATUS: usize = 0x20;
const INTERRUPT_STATUS: usize = 0x24;
const INTERRUPT_RAISE: usize = 0x60;
const INTERRUPT_ACKNOWLEDGE: usize = 0x64;
const DMA_SOURCE: usize = 0x80;
const DMA_TARGET: usize = 0x88;
const DMA_COUNT: usize = 0x90;
const DMA_COMMAND: usize = 0x98;
const REGISTERS_LEN: usize = 4096;
/// In the status register: a factorial is being computed; an interrupt comes when it is done.
const COMPUTING: u32 = 1;
const INTERRUPT_WHEN_DONE: u32 = 0x80;
/// In the command of a transfer: begin (and not yet done), from the device to memory, an interrupt
/// at the end.
const START: u64 = 1;
const TO_MEMORY: u64 = 2;
const INTERRUPT: u64 = 4;
/// The interrupt of a transfer's end.
const DMA_INTERRUPT: u32 = 0x100;
/// The device's own buffer of 4 KiB. A transfer that ends at its very end aborts older QEMUs, so
/// half of it is used.
const BUFFER: u64 = 0x4_0000;
const TRANSFER: usize = 2048;
/// Where memory is for the device: it has 28 address bits, and the first page stays free.
const BUS: u64 = 0x0800_0000;
const MEMORY_LEN: usize = 64 << 10;

/// The device and what its checks share.
struct Edu<'a, F> {
    function: &'a F,
    registers: Mapping,
    done: Event,
}

fn main() -> ExitCode {
    let mut checks = Checks::new();
    let mut words = std::env::args().skip(1);
    let (Some(mode), Some(address)) = (words.next(), words.next()) else {
        eprintln!("usage: et-vm-edu group|cdev ADDRESS");
        return ExitCode::FAILURE;
    };
    run(&mut checks, &mode, &address);
    checks.finish()
}

/// Runs the checks; a step that later ones need ends them if it fails.
fn run(checks: &mut Checks, mode: &str, address: &str) -> Option<()> {
    let mode: Mode = checks.step("mode", mode.parse())?;
    let at = checks.step("function_is_known", Sysfs::new(address))?;
    let function = checks.works("open", Kernel::open(&at, mode))?;
    checks.refused("second_open", Kernel::open(&at, mode));
    all(checks, &function)
}

/// Every check of a function that is open, whoever opened it.
fn all(checks: &mut Checks, function: &impl Function) -> Option<()> {
    let edu = bring_up(checks, function)?;
    edu.registers(checks);
    edu.interrupts(checks)?;
    let memory = checks.step("memory", Memory::new(MEMORY_LEN, Pages::Small))?;
    edu.transfers(checks, &memory)?;
    edu.refusals(checks, &memory)?;
    edu.reset(checks, &memory)
}

fn bring_up<'a, F: Function>(checks: &mut Checks, function: &'a F) -> Option<Edu<'a, F>> {
    let mut identity = [0; 4];
    checks.step("configuration_space", function.read(index::CONFIG, 0, &mut identity))?;
    checks.same("vendor_and_device", identity, [0x34, 0x12, 0xe8, 0x11]);
    let region = checks.step("first_bar", function.region(index::BAR0))?;
    checks.same("first_bar_is_a_mebibyte_to_map", (region.size, region.mappable), (1 << 20, true));
    let registers = checks.works("map_registers", function.map(index::BAR0, REGISTERS_LEN))?;
    let vectors = checks.step("interrupt_info", function.vectors(index::MSI))?;
    checks.same("one_vector", vectors, 1);
    let done = checks.step("event", Event::new())?;
    let armed = checks.step("arm", function.arm(index::MSI, std::slice::from_ref(&done)))?;
    checks.same("vectors_armed", armed, 1);
    let command = checks.step("bus_master", set_bus_master(function, true))?;
    checks.same("bus_master_is_on", command & BUS_MASTER, BUS_MASTER);
    Some(Edu { function, registers, done })
}

impl<F: Function> Edu<'_, F> {
    /// Waits until none of the bits of a register is set; whether it came to that.
    fn clears(&self, register: usize, bits: u32) -> bool {
        let end = Instant::now() + LIMIT;
        while self.registers.load32(register) & bits != 0 {
            if Instant::now() > end {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn acknowledge(&self, interrupts: u32) {
        self.registers.store32(INTERRUPT_ACKNOWLEDGE, interrupts);
    }

    /// Has the device copy, and waits until it says that it is done.
    fn transfer(&self, source: u64, target: u64, len: u64, command: u64) -> bool {
        self.registers.store64(DMA_SOURCE, source);
        self.registers.store64(DMA_TARGET, target);
        self.registers.store64(DMA_COUNT, len);
        self.registers.store64(DMA_COMMAND, START | command);
        self.clears(DMA_COMMAND, 1)
    }

    fn registers(&self, checks: &mut Checks) {
        // The middle of it is the version, which may be any.
        checks.same("identity", self.registers.load32(IDENTITY) & 0xff, 0xed);
        for value in [0, 1, 0x8000_0000, 0x1234_5678, u32::MAX] {
            self.registers.store32(LIVENESS, value);
            checks.same(&format!("liveness_{value:#x}"), self.registers.load32(LIVENESS), !value);
        }
        let mut identity = [0; 4];
        let read = self.function.read(index::BAR0, 0, &mut identity);
        checks.works("read_through_the_kernel", read);
        let mapped = self.registers.load32(IDENTITY);
        checks.same("both_ways_read_the_same", u32::from_le_bytes(identity), mapped);
        self.registers.store32(FACTORIAL, 10);
        checks.holds("factorial_ends", self.clears(STATUS, COMPUTING), "that it did not");
        checks.same("factorial", self.registers.load32(FACTORIAL), 3_628_800);
    }

    fn interrupts(&self, checks: &mut Checks) -> Option<()> {
        let before = checks.step("no_event_yet", self.done.take(Duration::ZERO))?;
        checks.same("nothing_before_the_interrupt", before, 0);
        self.registers.store32(INTERRUPT_RAISE, 0x55);
        let count = checks.step("wait_for_interrupt", self.done.take(LIMIT))?;
        checks.same("one_interrupt", count, 1);
        checks.same("interrupt_status", self.registers.load32(INTERRUPT_STATUS), 0x55);
        self.acknowledge(0x55);
        checks.same("acknowledged", self.registers.load32(INTERRUPT_STATUS), 0);

        self.registers.store32(STATUS, INTERRUPT_WHEN_DONE);
        self.registers.store32(FACTORIAL, 5);
        let count = checks.step("wait_for_factorial", self.done.take(LIMIT))?;
        checks.same("interrupt_of_the_factorial", count, 1);
        checks.same("factorial_by_interrupt", self.registers.load32(FACTORIAL), 120);
        self.registers.store32(STATUS, 0);
        self.acknowledge(u32::MAX);

        checks.step("trigger", self.function.trigger(index::MSI, 0))?;
        let count = checks.step("wait_for_trigger", self.done.take(LIMIT))?;
        checks.same("triggered_by_the_kernel", count, 1);
        Some(())
    }

    fn transfers(&self, checks: &mut Checks, memory: &Memory) -> Option<()> {
        let mapped = self.function.dma_map(memory, BUS, Access::ReadWrite);
        let bus = checks.works("map_memory", mapped)?;
        // Source and target are different pages, and neither is the first.
        for (round, len) in [TRANSFER, 4, 1, 2044].into_iter().enumerate() {
            let (from, to) = (0x3000 + round * 0x40, 0x9000 + round * 0x1000);
            let sent = pattern(round, len);
            memory.set_bytes(from, &sent);
            memory.set_bytes(to - 64, &[0xaa; 64 + TRANSFER + 64]);
            let wide = u64::try_from(len).ok()?;
            let source = bus + u64::try_from(from).ok()?;
            let target = bus + u64::try_from(to).ok()?;
            let there = self.transfer(source, BUFFER, wide, 0);
            checks.holds(&format!("{len}_bytes_to_device_end"), there, "that they did not");
            let back = self.transfer(BUFFER, target, wide, TO_MEMORY | INTERRUPT);
            checks.holds(&format!("{len}_bytes_to_memory_end"), back, "that they did not");
            let count = checks.step("wait_for_transfer", self.done.take(LIMIT))?;
            checks.same(&format!("interrupt_after_{len}_bytes"), count, 1);
            let status = self.registers.load32(INTERRUPT_STATUS);
            checks.same(&format!("status_after_{len}_bytes"), status, DMA_INTERRUPT);
            self.acknowledge(DMA_INTERRUPT);
            checks.holds(&format!("{len}_bytes_exact"), memory.bytes(to, len) == sent, "others");
            let around = [memory.bytes(to - 64, 64), memory.bytes(to + len, 64)].concat();
            let kept = around.iter().all(|byte| *byte == 0xaa);
            checks.holds(&format!("nothing_around_{len}_bytes"), kept, "changed bytes");
        }
        Some(())
    }

    /// What the device must not be able to do; the memory is mapped at the start, and not at the
    /// end.
    fn refusals(&self, checks: &mut Checks, memory: &Memory) -> Option<()> {
        let marks = vec![0x5a; MEMORY_LEN];
        memory.set_bytes(0, &marks);
        let unharmed = || memory.bytes(0, MEMORY_LEN) == marks;
        let len = u64::try_from(TRANSFER).ok()?;
        let write = |target| self.transfer(BUFFER, target, len, TO_MEMORY);

        let other = checks.step("other_memory", Memory::new(MEMORY_LEN, Pages::Small))?;
        let overlap = self.function.dma_map(&other, BUS + 4096, Access::ReadWrite);
        checks.refused("map_over_a_mapping", overlap);

        let command = checks.step("no_bus_master", set_bus_master(self.function, false))?;
        checks.same("bus_master_is_off", command & BUS_MASTER, 0);
        write(BUS);
        checks.holds("no_dma_without_bus_master", unharmed(), "changed memory");
        checks.step("bus_master_again", set_bus_master(self.function, true))?;

        let end = BUS + u64::try_from(MEMORY_LEN).ok()?;
        let mut faults = checks.step("kernel_log", Faults::new())?;
        write(end);
        checks.holds("no_dma_beyond_the_mapping", unharmed(), "changed memory");
        checks.holds(
            "fault_beyond_the_mapping",
            faults.more(LIMIT),
            "no fault in the kernel's log",
        );

        let unmapped = self.function.dma_unmap(BUS, MEMORY_LEN);
        let bytes = checks.step("unmap_memory", unmapped)?;
        checks.same("all_is_unmapped", bytes, u64::try_from(MEMORY_LEN).ok()?);
        write(BUS);
        checks.holds("no_dma_after_unmap", unharmed(), "changed memory");
        checks.holds("fault_after_unmap", faults.more(LIMIT), "no fault in the kernel's log");

        let mapped = self.function.dma_map(memory, BUS, Access::Read);
        checks.works("map_to_read", mapped)?;
        write(BUS);
        checks.holds("no_dma_write_to_a_read_mapping", unharmed(), "changed memory");
        checks.holds("fault_of_the_write", faults.more(LIMIT), "no fault in the kernel's log");
        let sent = pattern(7, TRANSFER);
        memory.set_bytes(0, &sent);
        checks.holds("dma_read_of_it_ends", self.transfer(BUS, BUFFER, len, 0), "that it did not");
        checks.holds(
            "dma_read_makes_no_fault",
            !faults.more(Duration::ZERO),
            "a fault in the kernel's log",
        );
        checks.step("unmap_it", self.function.dma_unmap(BUS, MEMORY_LEN))?;
        // What was read is still in the device.
        let mapped = self.function.dma_map(memory, BUS, Access::ReadWrite);
        checks.step("map_to_write", mapped)?;
        write(BUS + 0x8000);
        checks.holds("it_was_read", memory.bytes(0x8000, TRANSFER) == sent, "other bytes");
        checks.step("unmap_again", self.function.dma_unmap(BUS, MEMORY_LEN))?;
        Some(())
    }

    /// The device goes on after a reset, and mappings of memory outlive it.
    fn reset(&self, checks: &mut Checks, memory: &Memory) -> Option<()> {
        let len = u64::try_from(TRANSFER).ok()?;
        checks.step("map_before_reset", self.function.dma_map(memory, BUS, Access::ReadWrite))?;
        checks.works("reset", self.function.reset())?;
        checks.step("disarm", self.function.disarm(index::MSI))?;
        let armed = self.function.arm(index::MSI, std::slice::from_ref(&self.done));
        let armed = checks.step("arm_again", armed)?;
        checks.same("vectors_armed_again", armed, 1);
        checks.step("bus_master_after_reset", set_bus_master(self.function, true))?;
        checks.same("identity_after_reset", self.registers.load32(IDENTITY) & 0xff, 0xed);
        checks.step("forget_events", self.done.take(Duration::ZERO))?;
        let sent = pattern(11, TRANSFER);
        memory.set_bytes(0, &sent);
        self.transfer(BUS, BUFFER, len, 0);
        self.transfer(BUFFER, BUS + 0x8000, len, TO_MEMORY | INTERRUPT);
        let count = checks.step("wait_after_reset", self.done.take(LIMIT))?;
        checks.same("interrupt_after_reset", count, 1);
        let exact = memory.bytes(0x8000, TRANSFER) == sent;
        checks.holds("transfer_after_reset", exact, "other bytes");
        Some(())
    }
}

/// Bytes that differ from round to round, and from their neighbours.
fn pattern(round: usize, len: usize) -> Vec<u8> {
    let byte = |at| u8::try_from((at * 167 + round * 59 + at / 251 + 13) % 256).unwrap_or(0);
    (0..len).map(byte).collect()
}

/// The faults that the IOMMU reports in the kernel's log.
struct Faults(std::fs::File);

impl Faults {
    /// From now on.
    fn new() -> std::io::Result<Self> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut log = OpenOptions::new().read(true).custom_flags(nonblocking).open("/dev/kmsg")?;
        // Older lines are read and forgotten.
        let mut record = [0; 8192];
        while log.read(&mut record).is_ok_and(|count| count != 0) {}
        Ok(Self(log))
    }

    /// Whether there is one since the last call; waits for it, since the kernel hears of it by an
    /// interrupt.
    fn more(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut record = [0; 8192];
        loop {
            // A failed read says that there is no record now, or that some were overwritten.
            let count = self.0.read(&mut record).unwrap_or(0);
            if String::from_utf8_lossy(&record[..count]).contains("DMAR: [DMA") {
                return true;
            }
            if count == 0 && Instant::now() >= end {
                return false;
            }
            std::thread::yield_now();
        }
    }
}
