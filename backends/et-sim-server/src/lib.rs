#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod card;
mod config_space;
mod windows;

pub use card::{Card, CardOptions};
