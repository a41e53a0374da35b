# Finds the torch package that the extension is built against and offers it as the target `torch_package`.
#
# Not find_package(Torch): on a torch built for CUDA its configuration asks for a CUDA toolkit, and this project needs
# neither CUDA's headers nor its libraries. The folder of the torch package holds all that is needed.
#
#   FLAGOS_TORCH_ROOT   folder that holds `torch` and `torchgen`; empty: asked from Python_EXECUTABLE
#   FLAGOS_SYNTAX_ONLY  headers suffice: nothing is linked, and torch is not imported

set(FLAGOS_TORCH_ROOT "" CACHE PATH "Folder that holds the packages torch and torchgen (default: those of the Python)")

if(FLAGOS_TORCH_ROOT)
  set(FLAGOS_TORCH_FOLDER "${FLAGOS_TORCH_ROOT}")
else()
  # find_spec does not import torch: that would load its libraries, and every device backend with them.
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
            "import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec('torch').origin).parent.parent)"
    OUTPUT_VARIABLE FLAGOS_TORCH_FOLDER OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE torch_search_result ERROR_QUIET)
  if(NOT torch_search_result EQUAL 0)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no torch. Install torch >= 2.11 there first; "
                        "with pip, build with --no-build-isolation.")
  endif()
endif()

set(FLAGOS_TORCH_VERSION_FILE "${FLAGOS_TORCH_FOLDER}/torch/version.py")
file(STRINGS "${FLAGOS_TORCH_VERSION_FILE}" version_line REGEX "^__version__ *=")
string(REGEX MATCH "[0-9]+\\.[0-9]+[^'\"]*" FLAGOS_TORCH_VERSION "${version_line}")
if(FLAGOS_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "torch ${FLAGOS_TORCH_VERSION} in ${FLAGOS_TORCH_FOLDER} is too old: 2.11 or newer is needed.")
endif()

if(FLAGOS_SYNTAX_ONLY)
  set(FLAGOS_CXX11_ABI 1)
else()
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env TORCH_DEVICE_BACKEND_AUTOLOAD=0 "${Python_EXECUTABLE}" -c
            "import torch; print(int(torch._C._GLIBCXX_USE_CXX11_ABI))"
    OUTPUT_VARIABLE FLAGOS_CXX11_ABI OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
endif()
message(STATUS "torch ${FLAGOS_TORCH_VERSION} in ${FLAGOS_TORCH_FOLDER}")

add_library(torch_package INTERFACE)
target_include_directories(
  torch_package SYSTEM INTERFACE "${FLAGOS_TORCH_FOLDER}/torch/include"
                                 "${FLAGOS_TORCH_FOLDER}/torch/include/torch/csrc/api/include")
target_compile_definitions(torch_package INTERFACE _GLIBCXX_USE_CXX11_ABI=${FLAGOS_CXX11_ABI})
if(NOT FLAGOS_SYNTAX_ONLY)
  foreach(library IN ITEMS torch_python torch torch_cpu c10)
    target_link_libraries(torch_package INTERFACE "${FLAGOS_TORCH_FOLDER}/torch/lib/lib${library}.so")
  endforeach()
endif()
