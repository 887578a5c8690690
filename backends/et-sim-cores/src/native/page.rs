//! Translates a page.

use super::arena::Arena;
use super::emit::{Alu, Cond, Emitter, Label, Lanes, R8, R9, RAX, RCX, Reg, Rm, Vex, Width};
use super::registers::{FLOATS, Registers};
use super::thunks::{HART, LEFT, Thunks, distance, of_context, of_hart};
use super::{AHEAD, Entry, INTERPRETED, PageCode, Resume};
use crate::decode::code::{Decoder, PAGE_SLOTS};
use crate::decode::op::{Op, SINK, kind};
use crate::exec::reach::{is_load, is_store};

/// Instructions of a segment at most: on flat memory, and in the short turns of private caches.
const LONGEST: [usize; 2] = [16, 8];

/// What the numbers of counters begin with.
const COUNTERS: u32 = 0xC;

/// What is to be made of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It has code, or is executed by the interpreter in the middle of a segment.
    Plain,
    /// The same, and it may change masks and so on, so a segment ends behind it.
    Last,
    /// A conditional branch to a position, which may be in another page.
    Branch(isize),
    /// A jump to a position.
    Jump(isize),
    /// A jump to an address in a register.
    Indirect,
    /// It is left to the interpreter.
    Left,
}

/// What the code of an instruction relies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// The control word for floats.
    pub(super) computes: bool,
    /// All lanes enabled.
    pub(super) mask: bool,
}

fn class(at: usize, op: Op) -> Class {
    #[expect(clippy::cast_possible_truncation, reason = "a distance in halfwords of 32 bits")]
    let target = || at.cast_signed() + op.imm().cast_signed() as isize;
    match op.kind() {
        kind::BEQ..=kind::BGEU | kind::C_BEQ | kind::C_BNE => Class::Branch(target()),
        kind::JAL => Class::Jump(target()),
        kind::JALR => Class::Indirect,
        kind::UNDECODED
        | kind::ILLEGAL
        | kind::STRADDLE
        | kind::MICROCODED
        | kind::PAUSE
        | kind::ECALL
        | kind::EBREAK
        | kind::COUNTED => Class::Left,
        // What counts instructions is exact where code is left.
        kind::CSR if op.raw() >> 24 == COUNTERS => Class::Left,
        kind::CSR if !super::memory::is_line_operation(op) => Class::Last,
        kind::PACKED => {
            if super::float::has_code(op) {
                Class::Plain
            } else {
                Class::Last
            }
        }
        kind::MOV_M_X | kind::MOVA_M_X => Class::Last,
        _ => Class::Plain,
    }
}

/// A position in this page.
fn inside(position: isize) -> Option<usize> {
    usize::try_from(position).ok().filter(|&at| at < PAGE_SLOTS)
}

/// A known instruction.
#[derive(Clone, Copy, Debug)]
struct Node {
    at: usize,
    op: Op,
    class: Class,
}

impl Node {
    fn next(self) -> usize {
        self.at + self.op.halfwords()
    }
}

/// Finds what can be reached from the instructions that are decoded, in order.
fn reach(ops: &mut Decoder<'_>) -> Vec<Node> {
    let mut known: Vec<Option<Node>> = vec![None; PAGE_SLOTS];
    let mut open: Vec<usize> = (0..PAGE_SLOTS).filter(|&at| ops.is_decoded(at)).collect();
    while let Some(at) = open.pop() {
        if known[at].is_some() {
            continue;
        }
        let op = ops.decode(at);
        let node = Node { at, op, class: class(at, op) };
        known[at] = Some(node);
        let next = inside(node.next().cast_signed());
        let (target, next) = match node.class {
            Class::Plain | Class::Last => (None, next),
            // What follows a call is mostly reached.
            Class::Jump(target) if op.rd() == SINK as usize => (inside(target), None),
            Class::Branch(target) | Class::Jump(target) => (inside(target), next),
            Class::Left if op.kind() == kind::ILLEGAL => (None, None),
            Class::Left => (None, next),
            Class::Indirect => (None, None),
        };
        open.extend(target);
        open.extend(next);
    }
    known.into_iter().flatten().collect()
}

/// How often each integer register is used, and which are written.
fn usage(nodes: &[Node]) -> ([u64; SINK as usize], u32, [u64; FLOATS]) {
    // Loops count more than what is outside of them.
    let mut depth = [0_u32; PAGE_SLOTS];
    for node in nodes {
        if let Class::Branch(target) | Class::Jump(target) = node.class
            && let Some(target) = inside(target)
            && target <= node.at
            && node.op.rd() != 1
        {
            depth[target..=node.at].iter_mut().for_each(|depth| *depth += 1);
        }
    }
    let mut uses = [0; SINK as usize];
    let mut float_uses = [0; FLOATS];
    let mut written = 0;
    for node in nodes {
        let weight = 1 << (3 * depth[node.at].min(5));
        let (reads, writes) = operands(node.op);
        for x in reads.into_iter().chain([writes]).filter(|&x| x < SINK as usize) {
            uses[x] += weight;
        }
        for f in super::float::operands(node.op).into_iter().flatten() {
            float_uses[f] += weight;
        }
        if writes < SINK as usize {
            written |= 1 << writes;
        }
    }
    (uses, written, float_uses)
}

/// The integer registers that the code of an operation reads and writes; [`SINK`] for none.
fn operands(op: Op) -> ([usize; 2], usize) {
    const NONE: usize = SINK as usize;
    let raw = op.raw();
    let field = |shift: u32| (raw >> shift & 31) as usize;
    match op.kind() {
        kind::LUI | kind::C_LUI | kind::AUIPC | kind::JAL => ([NONE, NONE], op.rd()),
        kind::JALR => ([op.rs1(), NONE], op.rd()),
        kind::BEQ..=kind::BGEU | kind::C_BEQ | kind::C_BNE => ([op.rs1(), op.rs2()], NONE),
        kind::PACKED_LOAD
        | kind::PACKED_BROADCAST
        | kind::PACKED_STORE
        | kind::PRIVATE_PACKED_LOAD
        | kind::PRIVATE_PACKED_BROADCAST
        | kind::PRIVATE_PACKED_STORE
        | kind::PACKED_SPREAD => ([field(15), NONE], NONE),
        kind::PACKED_GATHER
        | kind::PACKED_GATHER_HALVES
        | kind::PRIVATE_PACKED_GATHER
        | kind::PRIVATE_PACKED_GATHER_HALVES => ([field(20), NONE], NONE),
        kind::PACKED_GATHER_BLOCK | kind::PRIVATE_PACKED_GATHER_BLOCK => {
            ([field(15), field(20)], NONE)
        }
        kind::MOVA_X_M => ([NONE, NONE], op.rd()),
        kind::MOV_M_X | kind::MOVA_M_X => ([field(15), NONE], NONE),
        _ if is_load(op) => ([op.rs1(), NONE], op.rd()),
        _ if is_store(op) => ([op.rs1(), op.rs2()], NONE),
        kind::FLW | kind::PRIVATE_FLW | kind::FSW | kind::PRIVATE_FSW | kind::FMV_W_X => {
            ([op.rs1(), NONE], NONE)
        }
        kind::FMV_X_W | kind::FEQ | kind::FLT | kind::FLE => ([NONE, NONE], op.rd()),
        kind::ADDI..=kind::REMUW | kind::PACKB | kind::C_ADDI..=kind::C_SUBW => {
            ([op.rs1(), op.rs2()], op.rd())
        }
        _ => ([NONE, NONE], NONE),
    }
}

/// What an instruction needs out of line: where that begins, and where it goes on.
#[derive(Clone, Copy, Debug)]
struct Slow {
    begin: Label,
    end: Label,
    at: usize,
    /// Instructions of the segment from this one on.
    unexecuted: usize,
    /// What is tried first.
    retry: Option<Retry>,
}

/// Another way to find the bytes of a load, which goes on with them at [`IN_FRAME`](super::memory).
#[derive(Clone, Copy, Debug)]
struct Retry {
    routine: usize,
    x: usize,
    distance: i32,
    found: Label,
}

/// The instructions left when a turn is over: the rest may be executed ahead.
#[expect(clippy::cast_possible_wrap, reason = "there are few")]
const OVER: i32 = AHEAD as i32;

/// Returns `true` if an instruction has code, and depends on nothing but registers of the hart,
/// and nothing else on it: when it is executed cannot be seen.
fn is_own(op: Op) -> bool {
    match op.kind() {
        kind::LUI..=kind::BGEU
        | kind::ADDI..=kind::REMUW
        | kind::PACKB
        | kind::FADD..=kind::FLE
        | kind::PACKED_FUSED..=kind::PACKED_PRODUCT
        | kind::PACKED_FROM_INTEGERS..=kind::PACKED_SHIFT
        | kind::C_LUI..=kind::C_BNE
        | kind::C_ADDI..=kind::C_SUBW => true,
        kind::PACKED => super::float::has_code(op),
        _ => false,
    }
}

/// A segment that is done in part, since the turn ends within it: where that begins, and what has
/// to be so.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    begin: Label,
    nodes: &'a [Node],
    /// Where the segment itself begins.
    resume: Resume,
    /// The number of the entry of its first instruction.
    first: usize,
    computes: bool,
    needs_mask: bool,
}

/// A way out of the page.
#[derive(Clone, Copy, Debug)]
struct Exit {
    begin: Label,
    to: isize,
    /// Instructions that were counted and are not executed.
    unexecuted: usize,
    way: Way,
}

/// How a page is left.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The interpreter goes on.
    Plain,
    /// A jump leads out of the page.
    Departure,
    /// The turn is over, and this is where the next one begins.
    Pause(Resume),
}

/// The code of a page under construction.
pub(super) struct Translator<'a> {
    pub(super) e: Emitter,
    pub(super) thunks: &'a Thunks,
    pub(super) registers: Registers,
    /// Registers of which no lane, or not the first, is subnormal.
    pub(super) normal: u32,
    pub(super) normal_first: u32,
    slow: Vec<Slow>,
    exits: Vec<Exit>,
    /// Turns are short: their ends have code, too, and some segments are executed ahead. Loads
    /// look into the cache first.
    pub(super) has_private_caches: bool,
    /// That of the instruction at hand, if it has one.
    current: Option<Slow>,
    at: usize,
    unexecuted: usize,
    /// Has the instruction at the position in `rcx` executed.
    execute_one: Label,
    /// Leaves for the address in `rax`.
    leave: Label,
    /// The same, where the next turn goes on in this page.
    pause: Label,
    /// Goes on at the address in `rax`, in another page.
    depart: Label,
    /// The same, in any page.
    depart_anywhere: Label,
    /// By position: where segments begin, in the memory for code.
    starts: Box<[u32; PAGE_SLOTS]>,
}

/// Translates what is known of a page.
pub(super) fn translate(
    ops: &mut Decoder<'_>,
    arena: &Arena,
    is_private: bool,
) -> Option<PageCode> {
    let nodes = reach(ops);
    let (uses, written, float_uses) = usage(&nodes);
    let registers = Registers::choose(&uses, written, &float_uses);
    arena.add(|offset| {
        let mut e = Emitter::new(offset);
        let (execute_one, leave, pause) = (e.label(), e.label(), e.label());
        let (depart, depart_anywhere) = (e.label(), e.label());
        let translator = Translator {
            e,
            thunks: &arena.thunks,
            registers,
            normal: 0,
            normal_first: 0,
            slow: Vec::new(),
            exits: Vec::new(),
            has_private_caches: is_private,
            current: None,
            at: 0,
            unexecuted: 0,
            execute_one,
            leave,
            pause,
            depart,
            depart_anywhere,
            starts: Box::new([0; PAGE_SLOTS]),
        };
        translator.page(&nodes, LONGEST[usize::from(is_private)])
    })
}

/// Positions at which segments begin.
fn leaders(nodes: &[Node], longest: usize) -> Vec<bool> {
    let mut leads = vec![false; PAGE_SLOTS];
    let mut expected = None;
    let mut length = 0;
    for node in nodes {
        if let Class::Branch(target) | Class::Jump(target) = node.class
            && let Some(target) = inside(target)
        {
            leads[target] = true;
        }
        if expected != Some(node.at) || node.class == Class::Left {
            leads[node.at] = true;
        }
        expected = (matches!(node.class, Class::Plain)).then_some(node.next());
    }
    for node in nodes {
        length = if leads[node.at] { 1 } else { length + 1 };
        if length > longest {
            leads[node.at] = true;
            length = 1;
        }
    }
    leads
}

impl Translator<'_> {
    fn page(mut self, nodes: &[Node], longest: usize) -> Option<(Vec<u8>, PageCode)> {
        let prologue = self.e.here();
        self.frame(prologue)?;
        let leads = leaders(nodes, longest);
        let labels: Vec<Option<Label>> =
            leads.iter().map(|&leads| leads.then(|| self.e.label())).collect();
        let mut index = Box::new([0_u16; PAGE_SLOTS]);
        let mut entries = Vec::with_capacity(nodes.len());
        let mut parts = Vec::new();
        let mut rest = nodes;
        while let Some(first) = rest.first() {
            let others = rest[1..].iter();
            let length = 1 + others.take_while(|node| !leads[node.at]).count();
            let (segment, behind) = rest.split_at(length);
            rest = behind;
            if let Some(label) = labels[first.at] {
                self.e.bind(label);
            }
            if first.class == Class::Left {
                index[first.at] = INTERPRETED;
                self.leave_for(first.at.cast_signed(), 0);
                continue;
            }
            let part = self.segment(segment, &labels, &mut index, &mut entries)?;
            parts.extend(part);
            let last = segment[length - 1];
            // Where it goes on, unless that is what comes next.
            if matches!(last.class, Class::Plain | Class::Last | Class::Branch(_))
                && rest.first().is_none_or(|node| node.at != last.next())
            {
                self.go_to(last.next().cast_signed(), &labels);
            }
        }
        for part in &parts {
            self.part(part, &mut entries)?;
        }
        self.out_of_line();
        let prologue = u32::try_from(prologue).ok()?;
        let code = PageCode { prologue, index, entries, starts: self.starts };
        Some((self.e.finish()?, code))
    }

    /// Writes what loads and saves registers.
    fn frame(&mut self, prologue: usize) -> Option<()> {
        let held: Vec<_> = self.registers.held().collect();
        let floats: Vec<_> = self.registers.held_floats().collect();
        let load = |e: &mut Emitter| {
            for &(home, holder, _) in &held {
                e.load(holder, home);
            }
            for &(home, holder) in &floats {
                e.vector_of(Lanes::Eight, Vex::LOAD_ALIGNED, holder, home);
            }
        };
        load(&mut self.e);
        self.e.jump_at(Rm::Reg(R8));
        self.e.bind(self.execute_one);
        for &(home, holder, _) in held.iter().filter(|(.., written)| *written) {
            self.e.store(home, holder);
        }
        self.e.call_offset(self.thunks.execute_one);
        load(&mut self.e);
        self.e.test(Width::Word, RAX, RAX);
        self.e.ret();
        self.e.bind(self.pause);
        let prologue = i32::try_from(prologue).ok()?;
        self.e.store_constant(of_hart!(resume.prologue), prologue);
        self.e.bind(self.leave);
        let save = |e: &mut Emitter| {
            for &(home, holder, _) in held.iter().filter(|(.., written)| *written) {
                e.store(home, holder);
            }
            e.store(of_hart!(pc), RAX);
        };
        save(&mut self.e);
        self.e.jump_offset(self.thunks.exit);
        self.e.bind(self.depart_anywhere);
        // In the same page everything stays where it is.
        self.e.load(RCX, Rm::Reg(RAX));
        self.e.alu(Width::Double, Alu::Sub, RCX, of_context!(base));
        self.e.alu_constant(Width::Double, Alu::Cmp, Rm::Reg(RCX), distance(2 * PAGE_SLOTS));
        self.e.jump_if(Cond::NotBelow, self.depart);
        self.e.constant(R8, self.starts.as_ptr().addr() as u64);
        self.e.load_word(R8, Rm::Indexed(R8, RCX, 1, 0));
        self.e.test(Width::Word, R8, R8);
        self.e.jump_if(Cond::Equal, self.leave);
        self.e.alu(Width::Double, Alu::Add, R8, of_context!(code));
        self.e.jump_at(Rm::Reg(R8));
        self.e.bind(self.depart);
        save(&mut self.e);
        self.e.jump_offset(self.thunks.depart);
        Some(())
    }

    /// Writes the code of a segment. Returns what else has to be written for it.
    fn segment<'n>(
        &mut self,
        nodes: &'n [Node],
        labels: &[Option<Label>],
        index: &mut [u16; PAGE_SLOTS],
        entries: &mut Vec<Entry>,
    ) -> Option<Option<Part<'n>>> {
        let length = nodes.len();
        let start = nodes[0].at.cast_signed();
        let (mut computes, mut mask) = (false, false);
        for node in nodes {
            let needs = super::float::needs(node.op);
            computes |= needs.computes;
            mask |= needs.mask;
        }
        let refused = self.exit(start, length);
        self.starts[nodes[0].at] = u32::try_from(self.e.here()).ok()?;
        let first = Resume { start: self.starts[nodes[0].at], ..Resume::default() };
        let is_own = self.has_private_caches && nodes.iter().all(|node| is_own(node.op));
        let part = (self.has_private_caches && !is_own && length > 1).then(|| Part {
            begin: self.e.label(),
            nodes,
            resume: first,
            first: entries.len(),
            computes,
            needs_mask: mask,
        });
        let count = i32::try_from(length).ok()?;
        self.e.alu_constant(Width::Double, Alu::Sub, Rm::Reg(LEFT), count);
        let short = match part {
            Some(part) => part.begin,
            // One instruction, or none may be executed ahead any more: the turn is over.
            None if self.has_private_caches => self.pause(start, length, first),
            None => refused,
        };
        if self.has_private_caches && !is_own {
            // What may be executed ahead can be fewer instructions than the segment has.
            self.e.alu_constant(Width::Double, Alu::Cmp, Rm::Reg(LEFT), OVER);
            self.e.jump_if(Cond::Less, short);
        } else {
            self.e.jump_if(Cond::Below, short);
        }
        self.conditions(computes, mask, refused);
        (self.normal, self.normal_first) = (0, 0);
        for (number, node) in nodes.iter().enumerate() {
            let remaining = length - number;
            entries.push(Entry {
                start: u32::try_from(self.e.here()).ok()?,
                part: 0,
                remaining: u16::try_from(remaining).ok()?,
                is_own,
                computes,
                needs_mask: mask,
                normal: self.normal,
                normal_first: self.normal_first,
            });
            index[node.at] = u16::try_from(entries.len()).ok()?;
            (self.at, self.unexecuted) = (node.at, remaining);
            self.current = None;
            match node.class {
                Class::Plain | Class::Last => self.instruction(node.op),
                Class::Branch(target) => {
                    let taken = self.label_of(target, labels);
                    self.branch(node.op, taken);
                }
                Class::Jump(target) => {
                    self.link(node.op);
                    self.go_to(target, labels);
                }
                Class::Indirect => self.jump_to_register(node.op),
                Class::Left => return None,
            }
            if let Some(slow) = self.current {
                self.e.bind(slow.end);
            }
        }
        Some(part)
    }

    /// Tests what the code of a segment relies on.
    fn conditions(&mut self, computes: bool, mask: bool, refused: Label) {
        if mask {
            self.e.compare_byte(of_hart!(masks), 0xFF);
            self.e.jump_if(Cond::NotEqual, refused);
        }
        if computes {
            let go_on = self.e.label();
            self.e.alu_constant(Width::Word, Alu::Cmp, of_context!(computes), 0);
            self.e.jump_if(Cond::NotEqual, go_on);
            self.e.call_offset(self.thunks.compute);
            self.e.jump_if(Cond::NotEqual, refused);
            self.e.bind(go_on);
        }
    }

    /// Writes the code of a segment for a turn that ends before its last instruction: it counts
    /// each by itself.
    fn part(&mut self, part: &Part<'_>, entries: &mut [Entry]) -> Option<()> {
        let Part { begin, nodes, resume, first, computes, needs_mask } = *part;
        let (last, others) = nodes.split_last()?;
        let start = nodes[0].at.cast_signed();
        let refused = self.exit(start, 0);
        self.e.bind(begin);
        let count = i32::try_from(nodes.len()).ok()?;
        self.e.alu_constant(Width::Double, Alu::Add, Rm::Reg(LEFT), count);
        self.e.alu_constant(Width::Double, Alu::Cmp, Rm::Reg(LEFT), OVER);
        let over = self.pause(start, 0, resume);
        self.e.jump_if(Cond::NotAbove, over);
        self.conditions(computes, needs_mask, refused);
        (self.normal, self.normal_first) = (0, 0);
        for (node, entry) in others.iter().zip(&mut entries[first..]) {
            entry.part = u32::try_from(self.e.here()).ok()?;
            (self.at, self.unexecuted) = (node.at, 1);
            self.current = None;
            let over = self.pause(node.at.cast_signed(), 1, entry.resume());
            self.e.alu_constant(Width::Double, Alu::Sub, Rm::Reg(LEFT), 1);
            self.e.alu_constant(Width::Double, Alu::Cmp, Rm::Reg(LEFT), OVER);
            self.e.jump_if(Cond::Below, over);
            // Jumps only come last.
            self.instruction(node.op);
            if let Some(slow) = self.current {
                self.e.bind(slow.end);
            }
        }
        let resume = entries.get(first + others.len())?.resume();
        let over = self.pause(last.at.cast_signed(), 0, resume);
        self.e.jump(over);
        Some(())
    }

    fn instruction(&mut self, op: Op) {
        let done = self.integer(op) || self.access(op) || self.float(op) || self.lines(op);
        if !done {
            self.interpret();
        }
    }

    /// Has the interpreter execute the instruction at hand.
    pub(super) fn interpret(&mut self) {
        let slow = self.slow();
        self.e.jump(slow);
    }

    /// Where the interpreter executes the instruction at hand, which then is complete.
    pub(super) fn slow(&mut self) -> Label {
        if let Some(slow) = self.current {
            return slow.begin;
        }
        let (begin, end) = (self.e.label(), self.e.label());
        let (at, unexecuted) = (self.at, self.unexecuted);
        let slow = Slow { begin, end, at, unexecuted, retry: None };
        self.current = Some(slow);
        self.slow.push(slow);
        begin
    }

    /// The same where the code in line looks for the bytes of a load in the simplest place: tries
    /// a routine before. Returns as well where to go on with bytes that were found.
    pub(super) fn slow_load(&mut self, routine: usize, x: usize, distance: i32) -> [Label; 2] {
        let begin = self.slow();
        let found = self.e.label();
        if let Some(slow) = self.slow.last_mut() {
            slow.retry = Some(Retry { routine, x, distance, found });
        }
        [begin, found]
    }

    fn exit(&mut self, to: isize, unexecuted: usize) -> Label {
        let begin = self.e.label();
        self.exits.push(Exit { begin, to, unexecuted, way: Way::Plain });
        begin
    }

    /// Leaves at the end of a turn.
    fn pause(&mut self, to: isize, unexecuted: usize, resume: Resume) -> Label {
        let begin = self.e.label();
        self.exits.push(Exit { begin, to, unexecuted, way: Way::Pause(resume) });
        begin
    }

    /// Leaves for a position.
    fn leave_for(&mut self, to: isize, unexecuted: usize) {
        let exit = self.exit(to, unexecuted);
        self.e.jump(exit);
    }

    /// Where a position is executed: in this page, or not.
    fn label_of(&mut self, to: isize, labels: &[Option<Label>]) -> Label {
        match inside(to).and_then(|at| labels[at]) {
            Some(label) => label,
            None => {
                let begin = self.e.label();
                self.exits.push(Exit { begin, to, unexecuted: 0, way: Way::Departure });
                begin
            }
        }
    }

    fn go_to(&mut self, to: isize, labels: &[Option<Label>]) {
        let label = self.label_of(to, labels);
        self.e.jump(label);
    }

    /// Puts an address, given as a position, into a register.
    pub(super) fn address(&mut self, to: Reg, position: isize) {
        self.e.constant(to, (position as i64 * 2).cast_unsigned());
        self.e.alu(Width::Double, Alu::Add, to, of_context!(base));
    }

    /// Writes the address behind the instruction at hand to its destination.
    fn link(&mut self, op: Op) {
        if op.rd() != SINK as usize {
            self.address(RAX, (self.at + op.halfwords()).cast_signed());
            self.write(op.rd(), RAX);
        }
    }

    fn jump_to_register(&mut self, op: Op) {
        self.read_into(RCX, op.rs1());
        self.add_constant(RCX, op.imm());
        self.e.alu_constant(Width::Double, Alu::And, Rm::Reg(RCX), -2);
        self.link(op);
        self.e.load(RAX, Rm::Reg(RCX));
        self.e.jump(self.depart_anywhere);
    }

    /// Position of the instruction at hand.
    pub(super) fn position(&self) -> isize {
        self.at.cast_signed()
    }

    /// Writes what is rarely executed.
    fn out_of_line(&mut self) {
        for slow in std::mem::take(&mut self.slow) {
            self.e.bind(slow.begin);
            if let Some(Retry { routine, x, distance, found }) = slow.retry {
                let none = self.e.label();
                self.effective(x, distance);
                self.e.call_offset(routine);
                self.e.jump_if(Cond::NotBelow, none);
                self.e.constant(R8, 0);
                self.e.jump(found);
                self.e.bind(none);
            }
            self.e.constant(RCX, slow.at as u64);
            self.e.call(self.execute_one);
            self.e.jump_if(Cond::Equal, slow.end);
            // 1 if the instruction was executed, and 2 if not.
            let distance = i32::try_from(slow.unexecuted).unwrap_or(0) - 2;
            self.e.lea(R9, Rm::Indexed(LEFT, RAX, 0, distance));
            self.e.jump_offset(self.thunks.exit);
        }
        for exit in std::mem::take(&mut self.exits) {
            self.e.bind(exit.begin);
            if exit.unexecuted != 0 {
                let count = i32::try_from(exit.unexecuted).unwrap_or(0);
                self.e.alu_constant(Width::Double, Alu::Add, Rm::Reg(LEFT), count);
            }
            self.address(RAX, exit.to);
            match exit.way {
                Way::Plain => self.e.jump(self.leave),
                Way::Departure => self.e.jump(self.depart),
                Way::Pause(Resume { start, remaining, computes, .. }) => {
                    self.e.store_constant(of_hart!(resume.start), start.cast_signed());
                    let both = i32::from(remaining) | i32::from(computes) << 16;
                    self.e.store_constant(of_hart!(resume.remaining), both);
                    self.e.jump(self.pause);
                }
            }
        }
    }
}

const _: () = assert!(LEFT == R9 && HART != RAX);
