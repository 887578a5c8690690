//! What random programs have found, and what they would find seldom.

use super::model::{Step, run};

/// A launch that finds its ring full keeps its context for the next try, and gives it back if there
/// is none.
#[test]
fn a_context_that_was_granted_comes_back_when_its_launch_is_aborted() {
    let submit = |stream, copies, launch| Step::Submit { stream, copies, launch };
    run(&[
        submit(1, 1, true),
        submit(3, 1, true),
        submit(3, 1, false),
        submit(0, 0, false),
        submit(0, 0, false),
        submit(0, 0, false),
        Step::Abort { op: 4, gentle: false },
        submit(0, 0, false),
    ]);
}
