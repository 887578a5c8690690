//! ET-SoC-1 compute cores: an RV64IMFC interpreter with the vendor extensions
