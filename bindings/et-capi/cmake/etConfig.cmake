# Targets et::et, the shared library, and et::et_static.

get_filename_component(_et_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

foreach(_et_target et et_static)
    if(TARGET et::${_et_target})
        continue()
    endif()
    if(_et_target STREQUAL "et")
        set(_et_file "${_et_prefix}/lib/libet.so")
        set(_et_kind SHARED)
    else()
        set(_et_file "${_et_prefix}/lib/libet.a")
        set(_et_kind STATIC)
    endif()
    if(NOT EXISTS "${_et_file}")
        continue()
    endif()
    add_library(et::${_et_target} ${_et_kind} IMPORTED)
    set_target_properties(et::${_et_target} PROPERTIES
        IMPORTED_LOCATION "${_et_file}"
        INTERFACE_INCLUDE_DIRECTORIES "${_et_prefix}/include")
endforeach()

if(TARGET et::et)
    set_target_properties(et::et PROPERTIES IMPORTED_SONAME "libet.so.0")
endif()
if(TARGET et::et_static)
    set_target_properties(et::et_static PROPERTIES
        INTERFACE_LINK_LIBRARIES "pthread;dl;m")
endif()

if(NOT TARGET et::et AND NOT TARGET et::et_static)
    set(et_FOUND FALSE)
    set(et_NOT_FOUND_MESSAGE "there is no libet in ${_et_prefix}/lib")
endif()

unset(_et_prefix)
unset(_et_target)
unset(_et_file)
unset(_et_kind)
