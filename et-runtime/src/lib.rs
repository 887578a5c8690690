//! Host runtime for ET-SoC-1 accelerators, generic over et-hal
