//! Which pool the present thread belongs to.

use std::cell::Cell;

thread_local! {
    /// The address of the pool; null if this is no thread of one.
    static POOL: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
}

/// Says once, at the beginning of a thread, whose it is. It ends before the pool's memory does.
pub(super) fn belong_to<P>(pool: *const P) {
    POOL.set(pool.cast());
}

/// Returns `true` on threads of this pool.
pub(super) fn belongs_to<P>(pool: *const P) -> bool {
    POOL.get() == pool.cast()
}
