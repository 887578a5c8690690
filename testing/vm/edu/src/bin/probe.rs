//! `et-vm-probe MODE ADDRESS basic|aer|remove|kill`: what the kernel's VFIO says of any function,
//! before a driver of ours is asked.

use std::io::Result;
use std::process::{Command, ExitCode};
use std::sync::mpsc::channel;
use std::time::Duration;

use et_vm_edu::{
    Access, BUS_MASTER, Checks, Event, Function, Kernel, Memory, Mode, Pages, Sysfs, ask, index,
    set_bus_master,
};

/// Limit of whatever the kernel or the host is to do.
const LIMIT: Duration = Duration::from_secs(20);
/// Above all memory of the guest, and not above what the IOMMU of a small machine translates.
const BUS: u64 = 64 << 30;
const MEMORY_LEN: usize = 1 << 20;
/// How much of a BAR is mapped.
const PAGE: usize = 4096;
/// The BAR with the registers.
const REGISTERS: u32 = 2;

fn main() -> ExitCode {
    let mut checks = Checks::new();
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [mode, address, what] = words.as_slice() else {
        eprintln!("usage: et-vm-probe group|cdev|noiommu ADDRESS basic|aer|remove|kill");
        return ExitCode::FAILURE;
    };
    run(&mut checks, mode, address, what);
    checks.finish()
}

fn run(checks: &mut Checks, mode: &str, address: &str, what: &str) -> Option<()> {
    let mode: Mode = checks.step("mode", mode.parse())?;
    let at = checks.step("function_is_known", Sysfs::new(address))?;
    let function = checks.works("open", Kernel::open(&at, mode))?;
    match what {
        "basic" => basic(checks, &at, &function, mode),
        "aer" => bus_error(checks, &function),
        "remove" => removal(checks, &at, function),
        "kill" => loss(checks, &function),
        _ => {
            checks.holds("what_to_do", false, what);
            None
        }
    }
}

fn identity(checks: &mut Checks, name: &str, function: &impl Function) -> Option<[u32; 2]> {
    let mut bytes = [0; 4];
    checks.step(name, function.read(index::CONFIG, 0, &mut bytes))?;
    let [a, b, c, d] = bytes;
    Some([u16::from_le_bytes([a, b]).into(), u16::from_le_bytes([c, d]).into()])
}

fn basic(checks: &mut Checks, at: &Sysfs, function: &Kernel, mode: Mode) -> Option<()> {
    checks.refused("second_open", Kernel::open(at, mode));
    let known =
        [checks.step("vendor", at.number("vendor"))?, checks.step("device", at.number("device"))?];
    let seen = identity(checks, "configuration_space", function)?;
    checks.same("identity_is_that_of_sysfs", seen, known);
    bars(checks, at, function)?;

    let command = checks.step("bus_master_off", set_bus_master(function, false))?;
    checks.same("bus_master_is_off", command & BUS_MASTER, 0);
    interrupts(checks, function, mode)?;
    let command = checks.step("bus_master_on", set_bus_master(function, true))?;
    checks.same("bus_master_is_on", command & BUS_MASTER, BUS_MASTER);

    match mode {
        Mode::NoIommu => {
            let memory = checks.step("memory", Memory::new(2 << 20, Pages::Huge))?;
            let bus = checks.step("physical_address", memory.physical())?;
            checks.holds("huge_pages_are_aligned", bus.is_multiple_of(2 << 20), bus);
        }
        Mode::Group | Mode::Cdev => mappings(checks, function)?,
    }
    checks.works("reset", function.reset())?;
    let after = identity(checks, "configuration_space_after_reset", function)?;
    checks.same("identity_after_reset", after, known);
    Some(())
}

/// Every BAR has the size that the kernel has found, and can be touched where it can be mapped.
fn bars(checks: &mut Checks, at: &Sysfs, function: &Kernel) -> Option<()> {
    let mut some = false;
    let table = checks.step("capabilities", msix_bar(function))?;
    for number in 0..6 {
        let region = checks.step(&format!("bar{number}"), function.region(number))?;
        let size = at.bar_size(usize::try_from(number).ok()?);
        let size = checks.step(&format!("bar{number}_in_sysfs"), size)?;
        checks.same(&format!("size_of_bar{number}"), region.size, size);
        some |= size != 0;
        if region.mappable {
            let name = format!("map_bar{number}");
            let mapping = checks.works(&name, function.map(number, PAGE))?;
            let mut bytes = [0; 4];
            let read = function.read(number, 0, &mut bytes);
            checks.works(&format!("read_bar{number}_through_the_kernel"), read)?;
            if Some(number) == table {
                // The kernel keeps the table of MSI-X to itself.
                continue;
            }
            let name = format!("both_ways_read_the_same_of_bar{number}");
            checks.same(&name, mapping.load32(0), u32::from_le_bytes(bytes));
        }
    }
    checks.holds("there_are_bars", some, "none");
    Some(())
}

/// The BAR with the table of MSI-X, if there is one.
fn msix_bar(function: &impl Function) -> Result<Option<u32>> {
    const CAPABILITIES: u64 = 0x34;
    const MSI_X: u8 = 0x11;
    let mut at = [0];
    function.read(index::CONFIG, CAPABILITIES, &mut at)?;
    // More cannot be, unless they go in a circle.
    for _ in 0..48 {
        let place = u64::from(at[0] & 0xfc);
        if place == 0 {
            break;
        }
        // Kind, next, control word, and in the table's word the number of the BAR.
        let mut head = [0; 8];
        function.read(index::CONFIG, place, &mut head)?;
        if head[0] == MSI_X {
            return Ok(Some(u32::from(head[4] & 7)));
        }
        at = [head[1]];
    }
    Ok(None)
}

/// Every vector reaches its own event, and no other.
fn interrupts(checks: &mut Checks, function: &Kernel, mode: Mode) -> Option<()> {
    let all = checks.step("interrupt_info", function.vectors(index::MSI))?;
    checks.holds("there_are_vectors", all != 0, all);
    let events = checks.step("events", Event::several(all))?;
    let count = checks.step("arm", function.arm(index::MSI, &events))?;
    // Only an IOMMU that translates interrupts too can tell several messages of a device apart.
    let expected = if mode == Mode::NoIommu { all.min(1) } else { all };
    checks.same("vectors_to_be_had", count, expected);
    let events = events.get(..usize::try_from(count).ok()?)?;
    if count != all {
        checks.refused("nothing_is_armed_then", function.trigger(index::MSI, 0));
        let armed = checks.step("arm_fewer", function.arm(index::MSI, events))?;
        checks.same("fewer_are_armed", armed, count);
    }
    for vector in 0..count {
        checks.step(&format!("trigger_{vector}"), function.trigger(index::MSI, vector))?;
        let mut counts = Vec::new();
        for (number, event) in (0..).zip(events) {
            let limit = if number == vector { LIMIT } else { Duration::ZERO };
            counts.push(checks.step("take", event.take(limit))?);
        }
        let expected: Vec<_> = (0..count).map(|number| u64::from(number == vector)).collect();
        checks.same(&format!("only_vector_{vector}"), counts, expected);
    }
    checks.step("disarm", function.disarm(index::MSI))?;
    checks.refused("trigger_unarmed", function.trigger(index::MSI, 0));
    Some(())
}

/// Memory is mapped once, and unmapped whole.
fn mappings(checks: &mut Checks, function: &Kernel) -> Option<()> {
    let memory = checks.step("memory", Memory::new(MEMORY_LEN, Pages::Small))?;
    checks.works("map", function.dma_map(&memory, BUS, Access::ReadWrite))?;
    checks.refused("map_twice", function.dma_map(&memory, BUS + 4096, Access::Read));
    let whole = u64::try_from(MEMORY_LEN).ok()?;
    let bytes = checks.step("unmap", function.dma_unmap(BUS, MEMORY_LEN))?;
    checks.same("all_is_unmapped", bytes, whole);
    checks.step("map_again", function.dma_map(&memory, BUS, Access::Read))?;
    let bytes = checks.step("unmap_again", function.dma_unmap(BUS, MEMORY_LEN))?;
    checks.same("all_is_unmapped_again", bytes, whole);
    Some(())
}

fn armed(checks: &mut Checks, function: &Kernel, number: u32) -> Option<Event> {
    let count = checks.step("interrupt_info", function.vectors(number))?;
    checks.same("one_vector", count, 1);
    let event = checks.step("event", Event::new())?;
    let count = checks.step("arm", function.arm(number, std::slice::from_ref(&event)))?;
    checks.same("armed", count, 1);
    Some(event)
}

/// The host injects an error above the device; the kernel must tell us.
fn bus_error(checks: &mut Checks, function: &Kernel) -> Option<()> {
    let event = armed(checks, function, index::ERROR)?;
    let count = checks.step("no_wait", event.take(Duration::ZERO))?;
    checks.same("no_error_yet", count, 0);
    checks.step("host", ask("READY-FOR-AER"))?;
    let count = checks.step("wait_for_error", event.take(LIMIT))?;
    checks.holds("error_is_signalled", count != 0, count);
    Some(())
}

/// The kernel wants the device back: it says so, waits for us, and takes it.
fn removal(checks: &mut Checks, at: &Sysfs, function: Kernel) -> Option<()> {
    let event = armed(checks, &function, index::REQUEST)?;
    let (done, end) = channel();
    let remover = at.clone();
    std::thread::spawn(move || done.send(remover.remove()));
    let count = checks.step("wait_for_request", event.take(LIMIT))?;
    checks.holds("request_is_signalled", count != 0, count);
    checks.holds("it_waits_for_us", at.exists(), "that the function is gone");
    drop(function);
    let removed = checks.step("removal_ends", end.recv_timeout(LIMIT))?;
    checks.works("removal", removed)?;
    checks.holds("it_is_gone", !at.exists(), "that the function is there");
    Some(())
}

/// The host ends the simulator; what is trapped reads as all ones, and nothing hangs.
fn loss(checks: &mut Checks, function: &Kernel) -> Option<()> {
    let mut bytes = [0; 4];
    checks.step("register", function.read(REGISTERS, 0, &mut bytes))?;
    checks.holds("the_card_lives", bytes != [0xff; 4], "all ones");
    // Nothing may be under way then: it has been seen to abort QEMU.
    checks.step("host", ask("READY-FOR-KILL"))?;
    checks.step("register_of_the_dead", function.read(REGISTERS, 0, &mut bytes))?;
    checks.same("all_ones_after_its_death", bytes, [0xff; 4]);
    identity(checks, "configuration_space_answers", function)?;
    // Who closes a lost function waits a minute for its reset. Another process has it open until
    // the power goes.
    let held = checks.step("hold", function.file())?;
    let holder = Command::new("busybox").args(["sleep", "600"]).stdin(held).spawn();
    checks.step("holder", holder).map(drop)
}
