# Target et-common-libs::cm-umode: the headers of the device SDK, and those under the names that
# kernels for the vendor's platform include.

if(NOT TARGET et-common-libs::cm-umode)
    get_filename_component(_et_sdk "${CMAKE_CURRENT_LIST_DIR}/../../et/device" ABSOLUTE)
    add_library(et-common-libs::cm-umode INTERFACE IMPORTED)
    set_target_properties(et-common-libs::cm-umode PROPERTIES
        INTERFACE_INCLUDE_DIRECTORIES "${_et_sdk}/include;${_et_sdk}/compat")
    unset(_et_sdk)
endif()
