//! Golden vectors, test clock and sample data shared by the tests
