//! Commands the device has: wire tag → what belongs to the command.

use std::collections::VecDeque;

use et_devapi::msg::Tag;

/// A fixed number of slots, each owning what one command in flight needs.
///
/// A tag is `round × capacity + slot`, where the round counts the uses of the slot: a late or
/// duplicate response carries an old round and matches nothing. Slots are reused in turn, so that
/// it takes `rounds × capacity` commands until a tag comes back.
#[derive(Debug)]
pub(crate) struct Flights<T> {
    slots: Box<[Slot<T>]>,
    free: VecDeque<u32>,
    rounds: u32,
}

#[derive(Debug)]
struct Slot<T> {
    round: u32,
    payload: Option<T>,
}

impl<T> Flights<T> {
    /// Creates a table of `capacity` slots, 1 to 32 767 (two rounds at least).
    pub(crate) fn new(capacity: u16) -> Self {
        let capacity = u32::from(capacity.clamp(1, 0x7fff));
        let slots = (0..capacity).map(|_| Slot { round: 0, payload: None }).collect();
        // Tag 0xFFFF belongs to events (Spec: §6), so the highest tag used is 0xFFFE.
        let rounds = u32::from(Tag::EVENT.as_u16()) / capacity;
        Self { slots, free: (0..capacity).collect(), rounds }
    }

    /// Returns the tag that the next command gets; `None` while all slots are in use.
    pub(crate) fn next_tag(&self) -> Option<Tag> {
        let index = *self.free.front()?;
        Some(self.tag_of(index))
    }

    /// Returns the number of free slots.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Puts a command in flight under [`next_tag`](Self::next_tag).
    ///
    /// Gives the payload back if all slots are in use.
    pub(crate) fn insert(&mut self, payload: T) -> Result<(), T> {
        let Some(index) = self.free.pop_front() else { return Err(payload) };
        self.slots[index as usize].payload = Some(payload);
        Ok(())
    }

    /// Returns the command that `tag` names, if it is in flight.
    pub(crate) fn get(&self, tag: Tag) -> Option<&T> {
        let (slot, round) = self.find(tag)?;
        (slot.round == round).then_some(slot.payload.as_ref())?
    }

    /// Takes the command that `tag` names, and frees the tag; `None` unless it is in flight.
    pub(crate) fn complete(&mut self, tag: Tag) -> Option<T> {
        self.get(tag)?;
        let capacity = self.capacity();
        let index = u32::from(tag.as_u16()) % capacity;
        let rounds = self.rounds;
        let slot = self.slots.get_mut(index as usize)?;
        let payload = slot.payload.take()?;
        slot.round = (slot.round + 1) % rounds;
        self.free.push_back(index);
        Some(payload)
    }

    /// Takes everything in flight, for a device that will not answer any more; frees the tags.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        let tags: Vec<Tag> = (0..self.capacity())
            .filter(|&index| self.slots[index as usize].payload.is_some())
            .map(|index| self.tag_of(index))
            .collect();
        tags.into_iter().filter_map(|tag| self.complete(tag)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns what is in flight.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.payload.as_mut())
    }

    /// Returns what is in flight.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.payload.as_ref())
    }

    fn capacity(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    fn tag_of(&self, index: u32) -> Tag {
        let number = self.slots[index as usize].round * self.capacity() + index;
        Tag::new(u16::try_from(number).unwrap_or(u16::MAX))
    }

    fn find(&self, tag: Tag) -> Option<(&Slot<T>, u32)> {
        let number = u32::from(tag.as_u16());
        let capacity = self.capacity();
        Some((self.slots.get((number % capacity) as usize)?, number / capacity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fly(flights: &mut Flights<u32>, payload: u32) -> Tag {
        let tag = flights.next_tag().unwrap();
        flights.insert(payload).unwrap();
        tag
    }

    #[test]
    fn a_full_table_gives_the_payload_back() {
        let mut flights = Flights::new(2);
        let first = fly(&mut flights, 1);
        fly(&mut flights, 2);
        assert_eq!(flights.next_tag(), None);
        assert_eq!(flights.insert(3), Err(3));
        assert_eq!(flights.complete(first), Some(1));
        assert_eq!(fly(&mut flights, 3).as_u16(), 2);
    }

    #[test]
    fn a_tag_of_an_earlier_round_matches_nothing() {
        let mut flights = Flights::new(1);
        let old = fly(&mut flights, 1);
        assert_eq!(flights.complete(old), Some(1));
        assert_eq!(flights.complete(old), None, "a duplicate");
        let new = fly(&mut flights, 2);
        assert_ne!(old, new);
        assert_eq!(flights.complete(old), None, "late");
        assert_eq!(flights.complete(new), Some(2));
    }

    #[test]
    fn tags_come_back_only_after_all_others_and_never_name_an_event() {
        let mut flights = Flights::new(4);
        let mut seen = std::collections::HashSet::new();
        for number in 0..65_535 / 4 * 4 {
            let tag = fly(&mut flights, number);
            assert!(seen.insert(tag.as_u16()), "{tag:?} after {number} commands");
            assert_ne!(tag, Tag::EVENT);
            assert_eq!(flights.complete(tag), Some(number));
        }
        let again = fly(&mut flights, 0);
        assert!(seen.contains(&again.as_u16()));
    }
}
