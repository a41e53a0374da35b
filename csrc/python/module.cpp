// The extension module torch_fl._C: translation between Python and the rest of the library, nothing else.
#include "accelerator/accelerator.h"
#include "device/allocator.h"
#include "device/backward_threads.h"
#include "device/generator.h"
#include "device/guard.h"
#include "device/register.h"
#include "device/served.h"
#include "python/survey.h"
#include "route/counters.h"
#include "route/log.h"
#include "route/settings.h"
#include "route/torch_registry.h"
#include "route/torch_routing.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>

namespace flagos {
namespace {

namespace py = pybind11;

// The shipped routing files lie beside this shared object.
std::string config_folder() {
  Dl_info info;
  TORCH_CHECK(dladdr(reinterpret_cast<const void*>(&config_folder), &info) != 0 && info.dli_fname != nullptr,
              "flagos: the folder of torch_fl._C cannot be found");
  return (std::filesystem::path(info.dli_fname).parent_path() / "configs").string();
}

// Returns what people should be warned of.
std::vector<std::string> register_from_python() {
  std::vector<std::string> warnings = register_device(config_folder());
  torch::utils::set_requires_device_init(c10::DeviceType::PrivateUse1, true);
  return warnings;
}

std::atomic<bool> initialized{false};

void lazy_init() {
  TORCH_CHECK(
      !torch::utils::is_device_in_bad_fork(c10::DeviceType::PrivateUse1),
      "Cannot re-initialize flagos in forked subprocess. To use flagos with multiprocessing, you must use the 'spawn' "
      "start method");
  if (!initialized.exchange(true)) {
    torch::utils::register_fork_handler_for_device_init(c10::DeviceType::PrivateUse1);  // fork before use stays legal
  }
}

// As the routing language writes it; PyTorch's own name for the types that it has no word for.
std::string dtype_text(c10::ScalarType type) {
  using enum c10::ScalarType;
  static const std::map<c10::ScalarType, const char*> names = {
      {Half, "f16"}, {BFloat16, "bf16"}, {Float, "f32"},        {Double, "f64"},
      {Char, "i8"},  {Short, "i16"},     {Int, "i32"},          {Long, "i64"},
      {Byte, "u8"},  {Bool, "bool"},     {ComplexFloat, "c64"}, {ComplexDouble, "c128"},
  };
  const auto found = names.find(type);
  return found == names.end() ? std::string(c10::getDtypeNames(type).first) : found->second;
}

std::string dtypes_text(uint64_t packed) {
  std::string text;
  for (; packed != 0; packed >>= 8) {
    const std::string name = dtype_text(static_cast<c10::ScalarType>((packed & 0xff) - 1));
    text = name + (text.empty() ? "" : ",") + text;
  }
  return text;
}

py::list settings_list() {
  py::list rows;
  // Before the device is registered the environment has not been read.
  const Settings now = settings().table.empty() ? read_settings(environ) : settings();
  for (const Setting& setting : now.table) {
    py::dict row;
    row["name"] = setting.name;
    row["value"] = setting.value;
    row["default"] = setting.default_value;
    row["origin"] = setting.from_environment ? "environment" : "default";
    row["help"] = setting.help;
    rows.append(row);
  }
  return rows;
}

py::dict properties_dict(c10::DeviceIndex index) {
  const DeviceProperties properties = accelerator().properties(check_device_index(index));
  py::dict row;
  row["name"] = properties.name;
  row["total_memory"] = memory_info(check_device_index(index)).second;
  row["multi_processor_count"] = properties.multi_processor_count;
  row["major"] = properties.major;
  row["minor"] = properties.minor;
  return row;
}

py::list backends_list() {
  py::list rows;
  const std::vector<const OperatorEntry*> entries = all_entries();
  size_t kernels = 0;
  for (const OperatorEntry* entry : entries) {
    kernels += entry->routed_by_default ? 1 : 0;
  }
  for (const BackendName& backend : kBackendNames) {
    const bool own = backend.backend == accelerator_backend;
    const bool none = backend.backend == Backend::kNone;
    py::dict row;
    row["name"] = std::string(backend.name);
    row["available"] = own || none;
    row["why"] = own    ? "kernels of the accelerator"
                 : none ? "decomposition, else a trip to the CPU"
                        : "not part of this build or of this accelerator";
    row["overloads"] = own ? kernels : none ? entries.size() : 0;
    rows.append(row);
  }
  return rows;
}

py::list routes_list() {
  py::list rows;
  const ResolvedRoutes applied = applied_routes();
  for (const OperatorEntry* entry : all_entries()) {
    const Route* route = entry->route.load();
    const auto own = applied.routes.find(entry->name);
    py::dict row;
    row["overload"] = entry->name;
    const bool decomposed = own == applied.routes.end() && !entry->routed_by_default;
    row["route"] = decomposed ? "none" : route == nullptr ? "" : route->text;
    row["origin"] = decomposed ? "decomposition" : own == applied.routes.end() ? "default" : own->second.origin;
    row["unboxed"] = entry->unboxed;
    rows.append(row);
  }
  return rows;
}

py::list device_overloads_list() {
  py::list rows;
  for (const ServedOverload& served : kServedOverloads) {
    py::dict row;
    row["overload"] = std::string(served.name);
    row["kind"] = served_kind_text(served.kind);
    rows.append(row);
  }
  return rows;
}

py::list check_config(const std::string& path, bool strict) {
  py::list rows;
  for (const Problem& problem : check_routing_file(path, strict || settings().strict_routes)) {
    py::dict row;
    row["file"] = problem.place.file;
    row["line"] = problem.place.line;
    row["column"] = problem.place.column;
    row["severity"] = problem.severity == Severity::kError     ? "error"
                      : problem.severity == Severity::kWarning ? "warning"
                                                               : "note";
    row["message"] = problem.message;
    rows.append(row);
  }
  return rows;
}

py::list route_stats() {
  py::list rows;
  for (const CallTotals& total : read_counters()) {
    py::dict row;
    row["overload"] = overload_name(total.key.overload);
    row["backend"] = total.key.reason == Reason::kDevice ? "device" : std::string(backend_name(total.key.backend));
    row["dtypes"] = dtypes_text(total.key.dtypes);
    row["reason"] = reason_text(total.key.reason);
    row["calls"] = total.calls;
    row["bytes_to_host"] = total.bytes_to_host;
    row["bytes_from_host"] = total.bytes_from_host;
    row["seconds"] = total.nanoseconds == 0 ? py::object(py::none())
                                            : py::object(py::float_(static_cast<double>(total.nanoseconds) * 1e-9));
    rows.append(row);
  }
  return rows;
}

void set_device(c10::DeviceIndex index) {
  if (index >= 0) {  // a negative index is a no-op, as on CUDA
    accelerator().guard()->setDevice(c10::Device(c10::DeviceType::PrivateUse1, index));
  }
}

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  const c10::DeviceIndex before = current_device();
  set_device(index);
  return before;
}

py::object default_generator_object(c10::DeviceIndex index) {
  return py::reinterpret_steal<py::object>(THPGenerator_Wrap(default_generator(index)));
}

// C strings end at a NUL, in file names and in messages.
const std::string& without_nul(const std::string& text, const char* name) {
  TORCH_CHECK_VALUE(text.find('\0') == std::string::npos, name, ": there is a NUL character in it");
  return text;
}

template <class Function>
void define(py::module_& module, const char* name, Function function) {
  module.def(name, torch::wrap_pybind_function(function));
}

void define_device(py::module_& module) {
  define(module, "register_device", &register_from_python);
  define(module, "accelerator_name", +[] { return std::string(accelerator().name()); });
  define(module, "settings", &settings_list);
  define(module, "device_count", +[] { return accelerator().device_count(); });
  define(module, "current_device", &current_device);
  define(module, "set_device", &set_device);
  define(module, "exchange_device", &exchange_device);
  define(module, "lazy_init", &lazy_init);
  define(
      module, "is_initialized",
      +[] { return initialized.load() && !torch::utils::is_device_in_bad_fork(c10::DeviceType::PrivateUse1); });
  define(module, "is_in_bad_fork", +[] { return torch::utils::is_device_in_bad_fork(c10::DeviceType::PrivateUse1); });
  define(
      module, "synchronize",
      +[](c10::DeviceIndex index) { accelerator().guard()->synchronizeDevice(check_device_index(index)); });
  define(module, "device_properties", &properties_dict);
  define(module, "mem_get_info", +[](c10::DeviceIndex index) { return memory_info(check_device_index(index)); });
  define(module, "set_memory_limit", &set_memory_limit);
  define(module, "fail_allocation", &fail_allocation);
  define(module, "default_generator", &default_generator_object);
  define(
      module, "drain_backward_threads", +[] {
        const py::gil_scoped_release no_gil;
        drain_backward_threads();
      });
}

void define_routing(py::module_& module) {
  define(module, "backends", &backends_list);
  define(module, "routes", &routes_list);
  define(module, "device_overloads", &device_overloads_list);
  define(module, "config_files", &routing_files);
  define(module, "check_config", &check_config);
  define(module, "load_config", +[](const std::string& path) { load_routing_file(without_nul(path, "path")); });
  define(
      module, "set_route", +[](const std::string& overload, const std::string& route) {
        set_route_override(without_nul(overload, "overload"), without_nul(route, "route"));
      });
  define(module, "clear_route_overrides", &clear_route_overrides);
  define(module, "route_stats", &route_stats);
  define(module, "reset_route_stats", &reset_counters);
  define(module, "set_timing", &set_timing);
  define(module, "set_log", +[](const std::string& words) { set_log(words); });
}

}  // namespace
}  // namespace flagos

PYBIND11_MODULE(_C, module) {
  flagos::define_device(module);
  flagos::define_routing(module);
  flagos::define_survey(module);
}
