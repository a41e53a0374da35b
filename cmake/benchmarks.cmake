# Builds the C++ benchmarks of bench/, where Google Benchmark is found. Not part of `all`: `make bench` asks for them.

find_package(benchmark QUIET)
if(benchmark_FOUND)
  # Only the few files that make aliases: a second build of the whole extension would cost minutes.
  file(GLOB alias_sources CONFIGURE_DEPENDS csrc/accelerator/*.cpp csrc/accelerator/host/*.cpp)
  add_executable(flagos_bench EXCLUDE_FROM_ALL bench/aliases.cpp ${alias_sources} csrc/backing/alias.cpp
                                               csrc/backing/storage.cpp csrc/device/allocator.cpp csrc/device/guard.cpp)
  target_link_libraries(flagos_bench PRIVATE ${flagos_core} flagos_options torch_package benchmark::benchmark)
else()
  add_custom_target(
    flagos_bench COMMAND "${CMAKE_COMMAND}" -E echo
                         "C++ benchmarks skipped: Google Benchmark was not found (Debian: apt-get install libbenchmark-dev)")
endif()
