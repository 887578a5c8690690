# Targets runtime::etrt, with the shared libet, and runtime::etrt_static, with the static one, as
# programs for the original runtime name them; deviceLayer::deviceLayer comes along.

include(CMakeFindDependencyMacro)
find_dependency(Threads)
list(PREPEND CMAKE_PREFIX_PATH "${CMAKE_CURRENT_LIST_DIR}/../../..")
find_dependency(et)
list(REMOVE_AT CMAKE_PREFIX_PATH 0)

get_filename_component(_etrt_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

foreach(_etrt_pair "etrt:et" "etrt_static:et_static")
    string(REPLACE ":" ";" _etrt_pair "${_etrt_pair}")
    list(GET _etrt_pair 0 _etrt_target)
    list(GET _etrt_pair 1 _etrt_library)
    if(TARGET runtime::${_etrt_target})
        continue()
    endif()
    add_library(runtime::${_etrt_target} STATIC IMPORTED)
    set_target_properties(runtime::${_etrt_target} PROPERTIES
        IMPORTED_LOCATION "${_etrt_prefix}/lib/libetrt.a"
        IMPORTED_LINK_INTERFACE_LANGUAGES CXX
        INTERFACE_INCLUDE_DIRECTORIES "${_etrt_prefix}/include"
        INTERFACE_COMPILE_FEATURES cxx_std_17
        INTERFACE_LINK_LIBRARIES "et::${_etrt_library};Threads::Threads")
endforeach()

if(NOT TARGET deviceLayer::deviceLayer)
    add_library(deviceLayer::deviceLayer INTERFACE IMPORTED)
    set_target_properties(deviceLayer::deviceLayer PROPERTIES
        INTERFACE_LINK_LIBRARIES runtime::etrt_static)
endif()

unset(_etrt_prefix)
unset(_etrt_pair)
unset(_etrt_target)
unset(_etrt_library)
