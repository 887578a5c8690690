//! Whose turn it is.

use std::collections::VecDeque;

/// Jobs of several members, of which the one who has used least is next.
///
/// Each job costs something, in whatever unit, which is charged to its member before or after it is
/// done. As long as a member has jobs, it gets the same share of the whole as every other that has:
/// however many, and however large, the jobs of the others are, at most one of each is done before
/// its next one, once all have used the same. Who was idle saves nothing up.
#[derive(Debug)]
pub struct Turns<J> {
    members: Vec<Member<J>>,
    /// What the member whose turn was last had used by then.
    floor: u64,
    /// The member whose turn was last.
    last: usize,
}

#[derive(Debug)]
struct Member<J> {
    jobs: VecDeque<J>,
    used: u64,
    /// A job of it is being done.
    is_busy: bool,
}

impl<J> Turns<J> {
    /// Makes turns for so many members.
    #[must_use]
    pub fn new(members: usize) -> Self {
        let member = || Member { jobs: VecDeque::new(), used: 0, is_busy: false };
        let members = std::iter::repeat_with(member).take(members).collect();
        Self { members, floor: 0, last: 0 }
    }

    /// Adds a job behind the others of its member.
    pub fn push(&mut self, member: usize, job: J) {
        let floor = self.floor;
        let Some(member) = self.members.get_mut(member) else { return };
        if member.jobs.is_empty() && !member.is_busy {
            member.used = member.used.max(floor);
        }
        member.jobs.push_back(job);
    }

    /// Takes the next job, and says whose it is.
    pub fn take_turn(&mut self) -> Option<(usize, J)> {
        let count = self.members.len();
        // Among those who have used the same, round the table.
        let distance = |index: usize| (index + count - self.last - 1) % count;
        let waiting = self.members.iter().enumerate().filter(|(_, member)| !member.jobs.is_empty());
        let (index, _) = waiting.min_by_key(|(index, m)| (m.used, distance(*index)))?;
        let member = self.members.get_mut(index)?;
        let job = member.jobs.pop_front()?;
        member.is_busy = true;
        (self.floor, self.last) = (member.used.max(self.floor), index);
        Some((index, job))
    }

    /// Charges a member for a job that it was given.
    pub fn charge(&mut self, member: usize, cost: u64) {
        if let Some(member) = self.members.get_mut(member) {
            member.used = member.used.saturating_add(cost);
            member.is_busy = false;
        }
    }

    /// Takes all jobs of a member.
    #[must_use]
    pub fn drain(&mut self, member: usize) -> Vec<J> {
        self.members
            .get_mut(member)
            .map(|member| member.jobs.drain(..).collect())
            .unwrap_or_default()
    }

    /// Returns how many jobs of a member wait.
    #[must_use]
    pub fn waiting(&self, member: usize) -> usize {
        self.members.get(member).map_or(0, |member| member.jobs.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::Turns;

    /// Does jobs one after the other, in virtual time; returns when each ended, by member.
    fn run(turns: &mut Turns<u64>, until: u64) -> Vec<(u64, usize)> {
        let (mut now, mut ended) = (0, Vec::new());
        while now < until {
            let Some((member, cost)) = turns.take_turn() else { break };
            now += cost;
            turns.charge(member, cost);
            ended.push((now, member));
        }
        ended
    }

    #[test]
    fn a_greedy_client_does_not_starve_another() {
        let mut turns = Turns::new(2);
        (0..10_000).for_each(|_| turns.push(0, 1000));
        // A member that comes late waits for one job of the other, not for ten thousand.
        run(&mut turns, 50_000);
        turns.push(1, 10);
        let ended = run(&mut turns, 2000);
        assert!(ended.iter().take(2).any(|&(_, member)| member == 1), "{ended:?}");
        // Short jobs go between the long ones, as many as take the same time.
        (0..100).for_each(|_| turns.push(1, 10));
        let ended = run(&mut turns, 3000);
        let short = ended.iter().filter(|&&(_, member)| member == 1).count();
        assert!(short >= 99, "{short} of 100");
    }

    #[test]
    fn the_idle_save_nothing_up() {
        let mut turns = Turns::new(2);
        (0..100).for_each(|_| turns.push(0, 10));
        run(&mut turns, 500);
        (0..100).for_each(|_| turns.push(1, 10));
        let ended = run(&mut turns, 200);
        let newcomer = ended.iter().filter(|&&(_, member)| member == 1).count();
        assert!((9..=11).contains(&newcomer), "{newcomer} of 20");
    }

    #[test]
    fn a_member_is_emptied_without_the_others() {
        let mut turns = Turns::new(2);
        turns.push(0, 1);
        turns.push(1, 2);
        turns.push(0, 3);
        assert_eq!(turns.waiting(0), 2);
        assert_eq!(turns.drain(0), [1, 3]);
        assert_eq!((turns.take_turn(), turns.take_turn()), (Some((1, 2)), None));
    }

    proptest! {
        /// Whatever is asked for, members that always have jobs differ by one job at most, and
        /// every job is done once, in the order of its member.
        #[test]
        fn shares_are_equal_to_one_job(
            costs in proptest::collection::vec(1_u64..1000, 2..6),
            order in proptest::collection::vec(any::<u16>(), 1..200),
        ) {
            let mut turns = Turns::new(costs.len());
            for (number, member) in order.iter().enumerate() {
                turns.push(usize::from(*member) % costs.len(), number);
            }
            let total = order.len();
            let mut used = vec![0_u64; costs.len()];
            let mut last = vec![None; costs.len()];
            let largest = costs.iter().copied().max().unwrap_or(0);
            for _ in 0..total {
                let waiting: Vec<_> = (0..costs.len()).filter(|m| turns.waiting(*m) != 0).collect();
                let Some((member, job)) = turns.take_turn() else { panic!("a job is lost") };
                prop_assert!(last[member].is_none_or(|last| last < job));
                last[member] = Some(job);
                let least = waiting.iter().map(|m| used[*m]).min().unwrap_or(0);
                prop_assert_eq!(used[member], least);
                used[member] += costs[member];
                turns.charge(member, costs[member]);
                let all: Vec<_> = (0..costs.len()).filter(|m| turns.waiting(*m) != 0).map(|m| used[m]).collect();
                let spread = all.iter().max().zip(all.iter().min()).map_or(0, |(a, b)| a - b);
                prop_assert!(spread <= largest);
            }
            prop_assert_eq!(turns.take_turn(), None);
        }
    }
}
