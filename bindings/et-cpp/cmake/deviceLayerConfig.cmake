# Found by programs for the original runtime, whose package runtime has the targets.

list(PREPEND CMAKE_PREFIX_PATH "${CMAKE_CURRENT_LIST_DIR}/../../..")
include(CMakeFindDependencyMacro)
find_dependency(runtime)
list(REMOVE_AT CMAKE_PREFIX_PATH 0)
