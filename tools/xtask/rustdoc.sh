#!/bin/sh
# rustdoc that compares the error codes of examples which must not compile.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
