//! Mocks of the et-hal traits for testing runtime logic without a device
