//! The promises of the runtime on this backend.

mod bench;
mod bits;
mod builtins;
mod copies;
mod environment;
mod errors;
mod events;
mod failures;
mod flow;
mod graph_failures;
mod graphs;
mod imports;
mod link;
mod lists;
mod management;
mod maps;
mod mistakes;
mod modules;
mod resets;
mod streams;
mod traces;

use et_hal::Hal;

use crate::Case;

/// All cases of the level.
pub(crate) fn cases<H: Hal>() -> Vec<Case<H>> {
    [
        copies::cases(),
        lists::cases(),
        imports::cases(),
        maps::cases(),
        streams::cases(),
        link::cases(),
        events::cases(),
        flow::cases(),
        bits::cases(),
        environment::cases(),
        modules::cases(),
        builtins::cases(),
        mistakes::cases(),
        failures::cases(),
        errors::cases(),
        traces::cases(),
        graphs::cases(),
        graph_failures::cases(),
        management::cases(),
        resets::cases(),
    ]
    .concat()
}
