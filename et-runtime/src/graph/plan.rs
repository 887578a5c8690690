//! Where the buffers of a graph are that it has for itself.
//!
//! Two of them may share memory if one is done with before the other begins, in every order in
//! which the graph may run: if all tasks that use the one are ordered before all tasks that use the
//! other. No time enters into it, since any number of workers may run what is not ordered.

use super::order;
use super::shape::View;

/// A buffer that is to have a place.
#[derive(Clone, Debug)]
pub(super) struct Need {
    pub(super) len: u64,
    /// A power of two.
    pub(super) align: u64,
    /// The tasks in whose time it must be there, each once; at least one.
    pub(super) users: Vec<u32>,
}

/// Places for buffers.
#[derive(Debug)]
pub(super) struct Plan {
    /// Where each begins, in its order.
    pub(super) offsets: Vec<u64>,
    pub(super) len_bytes: u64,
}

/// A set of small numbers, as large as it was made.
#[derive(Clone, Debug)]
struct Bits(Box<[u64]>);

impl Bits {
    fn none(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)].into())
    }

    fn all(len: usize) -> Self {
        Self(vec![u64::MAX; len.div_ceil(64)].into())
    }

    fn insert(&mut self, bit: usize) {
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn remove(&mut self, bit: usize) {
        self.0[bit / 64] &= !(1 << (bit % 64));
    }

    fn contains(&self, bit: usize) -> bool {
        self.0[bit / 64] >> (bit % 64) & 1 != 0
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, its)| *mine |= its);
    }
}

/// Finds places: the largest buffers first, each as low as those allow that it may not share memory
/// with.
pub(super) fn plan(view: View<'_>, needs: &[Need]) -> Plan {
    let before = orders(view, needs);
    let mut by_size: Vec<usize> = (0..needs.len()).collect();
    by_size.sort_by_key(|&need| std::cmp::Reverse(needs[need].len));
    let mut offsets = vec![0; needs.len()];
    let (mut placed, mut len_bytes) = (Vec::new(), 0);
    for need in by_size {
        let Need { len, align, .. } = needs[need];
        let is_ordered =
            |other: usize| before[need].contains(other) || before[other].contains(need);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for &other in &placed {
            if !is_ordered(other) {
                taken.push((offsets[other], offsets[other] + needs[other].len));
            }
        }
        taken.sort_unstable();
        let mut at = 0_u64;
        for (start, end) in taken {
            if at + len <= start {
                break;
            }
            at = at.max(end.next_multiple_of(align));
        }
        offsets[need] = at;
        len_bytes = len_bytes.max(at + len);
        placed.push(need);
    }
    Plan { offsets, len_bytes }
}

/// For each buffer those that are done with before any task that uses it can begin.
fn orders(view: View<'_>, needs: &[Need]) -> Vec<Bits> {
    // Each use has a number, those of a buffer follow one another.
    let mut uses: Vec<(u32, usize, usize)> = Vec::new();
    let mut first_of = vec![0];
    for (need, Need { users, .. }) in needs.iter().enumerate() {
        let first = uses.len();
        uses.extend(users.iter().zip(first..).map(|(&task, number)| (task, need, number)));
        first_of.push(uses.len());
    }
    let count = uses.len();
    uses.sort_unstable();
    let of_task = |task: u32| {
        let start = uses.partition_point(|(user, ..)| *user < task);
        uses[start..].iter().take_while(move |(user, ..)| *user == task)
    };
    let mut before = vec![Bits::all(needs.len()); needs.len()];
    // Of each task, the uses that have ended when it begins; nothing where there are none.
    let mut ended: Vec<Option<Bits>> = vec![None; view.len()];
    for task in order::topological(view) {
        let mut set = ended[task as usize].take();
        for &(_, need, _) in of_task(task) {
            let row = &mut before[need];
            for other in 0..needs.len() {
                let mut its_uses = first_of[other]..first_of[other + 1];
                let is_over =
                    set.as_ref().is_some_and(|set| its_uses.all(|number| set.contains(number)));
                if row.contains(other) && !is_over {
                    row.remove(other);
                }
            }
        }
        for &(_, _, number) in of_task(task) {
            set.get_or_insert_with(|| Bits::none(count)).insert(number);
        }
        let Some(set) = set else { continue };
        let (last, others) = match view.successors(task) {
            [] => continue,
            [others @ .., last] => (*last, others),
        };
        for &next in others {
            ended[next as usize].get_or_insert_with(|| Bits::none(count)).add(&set);
        }
        match &mut ended[last as usize] {
            Some(its) => its.add(&set),
            none => *none = Some(set),
        }
    }
    before
}
