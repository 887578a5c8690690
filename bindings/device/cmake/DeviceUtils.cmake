# add_riscv_executable(NAME [SOURCE...]): the kernel NAME.elf in the current binary directory.
#
# With LINKER_SCRIPT set, the project brings that and its start-up code; otherwise both are those of
# the SDK. The functions of <string.h> and <et/print.h> are there for kernels that call them.

get_filename_component(ET_DEVICE_SDK "${CMAKE_CURRENT_LIST_DIR}/../../et/device" ABSOLUTE)

macro(add_riscv_executable _et_kernel)
    if(NOT TARGET et-device-runtime)
        add_library(et-device-runtime STATIC
            "${ET_DEVICE_SDK}/src/string.c" "${ET_DEVICE_SDK}/src/print.c")
        target_compile_options(et-device-runtime PRIVATE -std=gnu11 -O2 -g0 -mcmodel=medany
            -ffreestanding -ffunction-sections -fno-tree-loop-distribute-patterns
            -msmall-data-limit=0 -fno-pic -w)
    endif()
    add_executable(${_et_kernel}.elf ${ARGN})
    set_target_properties(${_et_kernel}.elf PROPERTIES
        SUFFIX "" RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
    target_link_options(${_et_kernel}.elf PRIVATE -nostdlib -nostartfiles -static
        -Wl,--gc-sections -Wl,--build-id=none -Wl,-z,max-page-size=4096)
    target_link_libraries(${_et_kernel}.elf PRIVATE et-device-runtime)
    if(DEFINED LINKER_SCRIPT)
        target_link_options(${_et_kernel}.elf PRIVATE -T "${LINKER_SCRIPT}")
        set_target_properties(${_et_kernel}.elf PROPERTIES LINK_DEPENDS "${LINKER_SCRIPT}")
    else()
        enable_language(ASM)
        target_sources(${_et_kernel}.elf PRIVATE "${ET_DEVICE_SDK}/src/crt.S")
        target_compile_options(${_et_kernel}.elf PRIVATE -mcmodel=medany -mno-fdiv -mno-relax
            -msmall-data-limit=0 -ffreestanding -fno-tree-loop-distribute-patterns -fno-common
            -fno-asynchronous-unwind-tables -fno-stack-protector -fno-pic -ffunction-sections)
        target_link_options(${_et_kernel}.elf PRIVATE -T "${ET_DEVICE_SDK}/kernel.ld"
            -Wl,--emit-relocs -Wl,--no-relax -Wl,--fatal-warnings)
        set_target_properties(${_et_kernel}.elf PROPERTIES
            LINK_DEPENDS "${ET_DEVICE_SDK}/kernel.ld")
    endif()
endmacro()
