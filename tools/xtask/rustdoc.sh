#!/bin/sh
# rustdoc that compares the error codes of examples which must not compile. Of the crates that have none it does nothing.
case " $* " in
*" --crate-name et_runtime "*) RUSTC_BOOTSTRAP=1 exec rustdoc "$@" ;;
*" --crate-name "*) ;;
*) exec rustdoc "$@" ;;
esac
