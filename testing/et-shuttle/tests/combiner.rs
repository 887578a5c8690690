//! Many who publish, and waiters that come and go: in the end all is seen.
#![cfg(shuttle)]

use et_runtime::handshake::Combiner;
use et_shuttle::{chance, check};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

const PUBLISHERS: u64 = 4;
const EACH: u64 = 12;
const WAITERS: u32 = 2;

struct Board {
    published: AtomicU64,
    /// What was seen of it.
    combiner: Combiner<u64>,
}

impl Board {
    /// Looks; returns `true` if there was anything new.
    fn look(&self, seen: &mut u64) -> bool {
        let published = self.published.load(Ordering::Acquire);
        assert!(*seen <= published, "one at a time");
        std::mem::replace(seen, published) != published
    }

    fn publish(&self) {
        for _ in 0..EACH {
            self.published.fetch_add(1, Ordering::Release);
            self.combiner.notify(|seen| {
                self.look(seen);
            });
        }
    }

    fn come_and_go(&self) {
        for _ in 0..6 {
            if let Some(mut seen) = self.combiner.hold() {
                while *seen < PUBLISHERS * EACH && !chance(4) {
                    self.combiner.sleep(&mut seen, None, |seen| self.look(seen));
                }
                self.combiner.leave(seen, |seen| {
                    self.look(seen);
                });
            }
            thread::yield_now();
        }
    }
}

#[test]
fn all_that_is_published_is_seen() {
    check("combiner", 40_000, || {
        let board = Arc::new(Board { published: AtomicU64::new(0), combiner: Combiner::new(0) });
        let mut threads = Vec::new();
        for _ in 0..PUBLISHERS {
            let board = Arc::clone(&board);
            threads.push(thread::spawn(move || board.publish()));
        }
        for _ in 0..WAITERS {
            let board = Arc::clone(&board);
            threads.push(thread::spawn(move || board.come_and_go()));
        }
        for thread in threads {
            thread.join().unwrap();
        }
        // No one looks any more, and still nothing is left.
        assert_eq!(*board.combiner.hold().expect("free"), PUBLISHERS * EACH);
    });
}
