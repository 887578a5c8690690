//! loom models of the concurrent protocols
