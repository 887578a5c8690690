//! Facade of the ET-SoC-1 host stack: choose a backend, open a device
