//! Values under small numbers that are used again.

/// A vector whose freed places are used again.
#[derive(Debug)]
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts the values.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns the key of the next value.
    pub(super) fn next_key(&self) -> u32 {
        let new = || u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.free.last().copied().unwrap_or_else(new)
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        let key = self.next_key();
        match self.free.pop() {
            Some(key) => self.places[key as usize] = Some(value),
            None => self.places.push(Some(value)),
        }
        key
    }

    /// Drops a value where it is.
    pub(super) fn remove(&mut self, key: u32) {
        if let Some(place) = self.places.get_mut(key as usize)
            && place.is_some()
        {
            *place = None;
            self.free.push(key);
        }
    }

    pub(super) fn get(&self, key: u32) -> Option<&T> {
        self.places.get(key as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.places.get_mut(key as usize)?.as_mut()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    pub(super) fn keys(&self) -> Vec<u32> {
        let places = (0u32..).zip(&self.places);
        places.filter(|(_, place)| place.is_some()).map(|(key, _)| key).collect()
    }
}
