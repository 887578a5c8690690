//! et-hal backend for the ET-SoC-1 simulator
