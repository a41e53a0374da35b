# Builds the extension torch_fl._C from csrc/ and from the sources that enumerate_operators.py writes at build time.

if(FLAGOS_SYNTAX_ONLY)
  set(extension_library_kind OBJECT)
else()
  set(extension_library_kind MODULE)
endif()

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
include(cmake/torch_package.cmake)

file(GLOB_RECURSE extension_sources CONFIGURE_DEPENDS csrc/*.cpp)
list(REMOVE_ITEM extension_sources ${core_sources})

set(generated_folder "${CMAKE_CURRENT_BINARY_DIR}/generated")
set(generated_sources "")
set(enumerate_options "")
if(FLAGOS_BOXED_ONLY)
  list(APPEND enumerate_options --boxed-only)
endif()
math(EXPR last_shard "${FLAGOS_SHARDS} - 1")
foreach(shard RANGE ${last_shard})
  list(APPEND generated_sources "${generated_folder}/signatures_${shard}.cpp")
endforeach()

# The script leaves a file alone whose text would not change. As by-products its files are then looked at again (restat),
# so that a change of the script alone compiles only what it changed; the stamp tells that the script has run.
file(GLOB torchgen_inputs "${FLAGOS_TORCH_FOLDER}/torchgen/packaged/ATen/native/*.yaml")
file(GLOB enumerate_scripts CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cmake/*.py")
add_custom_command(
  OUTPUT "${generated_folder}/stamp"
  BYPRODUCTS "${generated_folder}/overload_table.cpp" ${generated_sources}
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/cmake/enumerate_operators.py" --torch
          "${FLAGOS_TORCH_FOLDER}" --out "${generated_folder}" --shards ${FLAGOS_SHARDS} ${enumerate_options}
  COMMAND "${CMAKE_COMMAND}" -E touch "${generated_folder}/stamp"
  DEPENDS ${enumerate_scripts} "${FLAGOS_TORCH_VERSION_FILE}" ${torchgen_inputs}
  COMMENT "Enumerating the operators of torch ${FLAGOS_TORCH_VERSION}"
  VERBATIM)
add_custom_target(flagos_enumerate DEPENDS "${generated_folder}/stamp")

add_library(_C ${extension_library_kind} ${extension_sources} "${generated_folder}/overload_table.cpp"
            ${generated_sources})
add_dependencies(_C flagos_enumerate)
target_include_directories(_C PRIVATE "${generated_folder}")
# SYSTEM: warnings in torch's, pybind11's and Python's headers are not ours to mend.
target_include_directories(_C SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
target_link_libraries(_C PRIVATE flagos_options ${flagos_core} torch_package)
if(FLAGOS_BOXED_ONLY)
  target_compile_definitions(_C PRIVATE FLAGOS_BOXED_ONLY=1)
endif()

if(NOT FLAGOS_SYNTAX_ONLY)
  # The installed neighbour is torch; in a source tree its libraries are in the process already, since torch_fl imports
  # torch first. So one binary serves both, and no absolute path gets into it.
  set_target_properties(
    _C
    PROPERTIES PREFIX ""
               SUFFIX ".${Python_SOABI}${CMAKE_SHARED_MODULE_SUFFIX}"
               LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/torch_fl"
               BUILD_WITH_INSTALL_RPATH ON
               INSTALL_RPATH "$ORIGIN/../torch/lib")
  target_link_options(_C PRIVATE LINKER:--as-needed)
  # torch and the extension must share one C++ library: streams and exceptions cross between them, and a second copy has its
  # own locale facets, at which the first formatted number ends the process. Some compilers bring only a static library.
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=libstdc++.so OUTPUT_VARIABLE shared_cxx_library
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${shared_cxx_library}")
    find_library(FLAGOS_CXX_LIBRARY NAMES libstdc++.so.6)
    if(FLAGOS_CXX_LIBRARY)
      message(STATUS "${CMAKE_CXX_COMPILER} has only a static C++ library; linking ${FLAGOS_CXX_LIBRARY}")
      target_link_libraries(_C PRIVATE "${FLAGOS_CXX_LIBRARY}")
    else()
      message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has only a static C++ library and no libstdc++.so.6 was found: "
                          "name it with -DFLAGOS_CXX_LIBRARY=/path/libstdc++.so.6")
    endif()
  endif()
  install(TARGETS _C LIBRARY DESTINATION torch_fl)
endif()
