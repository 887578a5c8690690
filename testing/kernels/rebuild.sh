#!/bin/sh
# Builds all kernels of this directory.
#
#   rebuild.sh          builds into elf/
#   rebuild.sh --check  builds elsewhere and compares with elf/, byte for byte
#
# Both also inspect the result: segments as the vendor's loader wants them, no instruction that the
# minions trap on, no path of the building machine.
#
# Exit codes: 0 good, 1 difference or failure, 77 skipped, 2 wrong usage.
set -eu
LC_ALL=C
export LC_ALL

prefix=${CROSS_COMPILE:-riscv64-unknown-elf-}
# The compiler that made the files in elf/. Another one makes other bytes, so there is nothing to
# compare then.
made_with=12.2.0

case "${1-}" in
    '') mode=build ;;
    --check) mode=check ;;
    *) echo "usage: rebuild.sh [--check]" >&2; exit 2 ;;
esac

if ! command -v "${prefix}gcc" >/dev/null 2>&1; then
    echo "skipped, because ${prefix}gcc is not installed"
    exit 77
fi
version=$("${prefix}gcc" -dumpfullversion)
if [ "$version" != "$made_with" ]; then
    if [ "$mode" = check ]; then
        echo "skipped, because ${prefix}gcc is $version and the committed files are by $made_with"
        exit 77
    fi
    echo "note: ${prefix}gcc is $version, not $made_with; update made_with in rebuild.sh" >&2
fi

cd "$(dirname "$0")"
here=$(pwd)
project=$(cd ../.. && pwd)
sdk=../../bindings/device
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# The assembler that knows the vendor's instructions, in a directory of its own for -B.
cargo build --quiet --locked --package et-as
mkdir "$work/bin"
ln -s "$(cd "${CARGO_TARGET_DIR:-$project/target}" && pwd)/debug/et-as" "$work/bin/as"

# Code: what the cores execute, absolute addresses only in data, and no relaxation, which would
# multiply the relocations. fp-contract=off so that results can be compared with a host that does
# not fuse. loop-distribute-patterns would turn loops into calls of a memset that does not exist.
# Debug: functions and lines, in the form that is smallest and needs no relocation.
flags="-march=rv64imfc -mabi=lp64f -mcmodel=medany -mno-fdiv -mno-relax -msmall-data-limit=0
    -O2 -std=c11 -ffreestanding -ffp-contract=off -fno-tree-loop-distribute-patterns
    -fno-common -fno-asynchronous-unwind-tables -fno-stack-protector -fno-pic
    -ffunction-sections -Wall -Wextra -Werror
    -g1 -gdwarf-4 -fno-var-tracking -gno-column-info -gno-record-gcc-switches -gz=none"
link="-nostdlib -nostartfiles -static -Wl,-T,$sdk/kernel.ld -Wl,--emit-relocs -Wl,--no-relax
    -Wl,-z,max-page-size=4096 -Wl,--build-id=none -Wl,--gc-sections -Wl,--fatal-warnings"

fail() {
    echo "$1: $2" >&2
    exit 1
}

# The compiler's own headers, wherever it is installed.
headers=$("${prefix}gcc" -print-file-name=include)

compile() { # source object
    # In the debug information sources are named as seen from the root of the project. The assembler
    # has to be told separately: gcc does not pass its own map on.
    # shellcheck disable=SC2086 # flags are meant to be split
    "${prefix}gcc" -B"$work/bin/" $flags -ffile-prefix-map="$project/"= \
        -ffile-prefix-map="$headers"=gcc "-Wa,--debug-prefix-map=$here=testing/kernels" \
        -I"$project/bindings/device/include" -c "$1" -o "$2"
}

inspect_relocations() { # elf-before-stripping name
    # The loader patches absolute words, in data. All of the code must be pc-relative.
    "${prefix}readelf" -rW "$1" | awk '
        /^Relocation section/ { section = $3 }
        $3 ~ /^R_RISCV_/ && section !~ /debug/ { print section, $3 }' |
        tr -d "'" | sort -u >"$work/relocations"
    if grep -Ev -e '^\.rela\.(data|rodata) R_RISCV_64$' -e \
        '^\.rela\.text R_RISCV_(BRANCH|JAL|CALL|CALL_PLT|PCREL_HI20|PCREL_LO12_I|PCREL_LO12_S|RVC_BRANCH|RVC_JUMP)$' \
        "$work/relocations"; then
        fail "$2" "relocation that does not survive loading elsewhere"
    fi
}

inspect() { # elf name
    file=$1
    "${prefix}readelf" -hW "$file" >"$work/header"
    grep -q 'Entry point address: *0x8005801000$' "$work/header" || fail "$2" "entry is not 0x8005801000"
    grep -q 'RVC, single-float ABI' "$work/header" || fail "$2" "not built for lp64f"

    # Type Offset VirtAddr PhysAddr FileSiz MemSiz Flg Align.
    "${prefix}readelf" -lW "$file" |
        sed -n '/^Program Headers/,/^$/p' | sed -n 's/^  \([A-Z_][A-Z_]* *0x.*\)/\1/p' >"$work/segments"
    first=yes
    while read -r type offset virtual physical _ memsize f1 f2 _; do
        [ "$type" = LOAD ] || fail "$2" "segment of type $type"
        [ $((memsize)) -ne 0 ] || fail "$2" "empty segment"
        [ "$virtual" = "$physical" ] || fail "$2" "virtual and physical address differ"
        [ $((physical - offset)) -eq $((0x8005800000)) ] || fail "$2" "address and file offset do not match"
        # Read and execute is printed with a blank between, read and write without.
        case "$f1 $f2" in
            'R E' | 'RW 0x'*) ;;
            *) fail "$2" "segment is neither code nor data: $f1 $f2" ;;
        esac
        [ $first = no ] || [ $((offset)) -eq $((0x1000)) ] || fail "$2" "first segment is not at file offset 0x1000"
        first=no
    done <"$work/segments"
    [ $first = no ] || fail "$2" "no segment"

    # Instructions that trap or do not exist on the minions, doubles included. With -D, because -d
    # shows what was written as .word, and all that follows, as data.
    "${prefix}objdump" -D -j .text "$file" |
        awk -F '\t' 'NF >= 3 { split($3, word, " "); print word[1] }' | sort -u >"$work/mnemonics"
    if grep -E '^(fdiv|fsqrt|fcvt\.(l|lu)\.|fcvt\.[sd]\.lu?$|fence\.i|lr\.|sc\.|amo|fld|fsd|c\.fld|c\.fsd|f.*\.d($|\.)|rdcycle|rdtime|rdinstret|wfi|mret|sret)' \
        "$work/mnemonics"; then
        fail "$2" "instruction that the minions cannot run"
    fi

    for path in "$project" "$work" "${HOME:-/}"; do
        [ "$path" = / ] || ! grep -qF -- "$path" "$file" || fail "$2" "contains a path of this machine"
    done
}

mkdir "$work/elf"
compile "$sdk/src/crt.S" "$work/crt.o"
for source in src/*.c src/*.S; do
    base=${source##*/}
    name=${base%.*}
    compile "$source" "$work/$name.o"
    start=$work/crt.o
    # A kernel with a _start of its own replaces the start-up code.
    if "${prefix}nm" "$work/$name.o" | grep -q ' T _start$'; then
        start=
    fi
    # shellcheck disable=SC2086 # flags are meant to be split, and start may be nothing
    "${prefix}gcc" $flags $link $start "$work/$name.o" -o "$work/linked"
    inspect_relocations "$work/linked" "$name"
    # The loader wants the relocations of data only; those of code and debug sections, which the
    # linker has resolved for good, would be the largest part of the file. A second pass, because
    # the first still takes the labels they refer to for used.
    "${prefix}objcopy" --remove-relocations=.text --remove-relocations='.debug_*' \
        "$work/linked" "$work/slim"
    # shellcheck disable=SC2016 # symbols named $x and $d mark code and data; those are no variables
    "${prefix}objcopy" --wildcard --strip-symbol='.L*' --strip-symbol='$x*' --strip-symbol='$d*' \
        "$work/slim" "$work/elf/$name.elf"
    chmod 644 "$work/elf/$name.elf"
    # Graphs find tasks by name.
    if grep -q '^ET_TASK_ENTRY' "$source" &&
        ! "${prefix}nm" "$work/elf/$name.elf" | grep -q ' T et_task$'; then
        fail "$name" "et_task is not in the symbol table"
    fi
    inspect "$work/elf/$name.elf" "$name"
done

if [ "$mode" = build ]; then
    mkdir -p elf
    rm -f elf/*.elf
    cp "$work"/elf/*.elf elf/
    set -- elf/*.elf
    echo "built $# kernels"
    exit 0
fi

status=0
for file in "$work"/elf/*.elf; do
    if ! cmp -s "$file" "elf/${file##*/}"; then
        echo "missing or not what its source gives: elf/${file##*/}" >&2
        status=1
    fi
done
for file in elf/*.elf; do
    if [ ! -e "$work/$file" ]; then
        echo "has no source: $file" >&2
        status=1
    fi
done
[ $status -ne 0 ] || echo "elf/ matches the sources"
exit $status
