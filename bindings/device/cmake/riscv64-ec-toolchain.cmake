# The compilers of device code: a stock toolchain behind et-gcc and et-g++, which know the vendor's
# instructions, the architecture and the headers. For CMAKE_TOOLCHAIN_FILE, or to be included in the
# directory of the kernels of a project for the host.

get_filename_component(_et_bin "${CMAKE_CURRENT_LIST_DIR}/../../bin" ABSOLUTE)

if(CMAKE_TOOLCHAIN_FILE AND CMAKE_TOOLCHAIN_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
    set(CMAKE_SYSTEM_NAME Generic)
    set(CMAKE_SYSTEM_PROCESSOR riscv64)
    # Programs need a linker script.
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
else()
    # What a project chose for the host.
    foreach(_et_flags C_FLAGS CXX_FLAGS ASM_FLAGS EXE_LINKER_FLAGS)
        set(CMAKE_${_et_flags} "")
    endforeach()
    set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
    set(CMAKE_INTERPROCEDURAL_OPTIMIZATION OFF)
endif()

set(CMAKE_C_COMPILER "${_et_bin}/et-gcc")
set(CMAKE_CXX_COMPILER "${_et_bin}/et-g++")
set(CMAKE_ASM_COMPILER "${_et_bin}/et-gcc")

# The prefixes that et-gcc looks for, in its order.
set(_et_prefixes riscv64-unknown-elf- riscv64-elf- riscv-none-elf-)
if(DEFINED ENV{CROSS_COMPILE})
    set(_et_prefixes "$ENV{CROSS_COMPILE}")
endif()
foreach(_et_tool ar ranlib strip objdump objcopy nm size readelf addr2line ld)
    string(TOUPPER "${_et_tool}" _et_name)
    if(_et_tool STREQUAL "ld")
        set(_et_name LINKER)
    endif()
    set(_et_names)
    foreach(_et_prefix IN LISTS _et_prefixes)
        list(APPEND _et_names "${_et_prefix}${_et_tool}")
    endforeach()
    find_program(ET_${_et_name} NAMES ${_et_names} NO_CMAKE_FIND_ROOT_PATH)
    mark_as_advanced(ET_${_et_name})
    if(NOT ET_${_et_name})
        message(FATAL_ERROR "none of ${_et_names} was found: install the package "
            "binutils-riscv64-unknown-elf (Debian, Ubuntu) or riscv64-elf-binutils (Arch, "
            "Homebrew)")
    endif()
    set(CMAKE_${_et_name} "${ET_${_et_name}}")
endforeach()

unset(_et_bin)
unset(_et_flags)
unset(_et_name)
unset(_et_names)
unset(_et_prefix)
unset(_et_prefixes)
unset(_et_tool)
