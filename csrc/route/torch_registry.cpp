// Enumerating overloads from the dispatcher and registering their kernels.
#include "route/torch_registry.h"

#include "accelerator/accelerator.h"
#include "backing/overload_table.h"
#include "device/composites.h"
#include "device/served.h"
#include "route/torch_router.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace flagos {
namespace {

struct NamedArgument {
  const char* overload;
  const char* argument;
};

// CPU tensors that an operator takes beside device tensors, as it does on CUDA. Neither schema nor CPU kernel tells.
constexpr std::array kCpuArguments = {
    NamedArgument{"index.Tensor", "indices"},         NamedArgument{"index.Tensor_out", "indices"},
    NamedArgument{"_unsafe_index.Tensor", "indices"}, NamedArgument{"index_put", "indices"},
    NamedArgument{"index_put_", "indices"},           NamedArgument{"_index_put_impl_", "indices"},
    NamedArgument{"_unsafe_index_put", "indices"},    NamedArgument{"lstm.data", "batch_sizes"},
    NamedArgument{"gru.data", "batch_sizes"},         NamedArgument{"rnn_tanh.data", "batch_sizes"},
    NamedArgument{"rnn_relu.data", "batch_sizes"},
};

// Arguments that a kernel updates although their schema does not mark them as written.
constexpr std::array kUnannouncedWrites = {
    NamedArgument{"native_batch_norm", "running_mean"},
    NamedArgument{"native_batch_norm", "running_var"},
    NamedArgument{"native_batch_norm.out", "running_mean"},
    NamedArgument{"native_batch_norm.out", "running_var"},
    NamedArgument{"batch_norm_update_stats", "running_mean"},
    NamedArgument{"batch_norm_update_stats", "running_var"},
    NamedArgument{"batch_norm_update_stats.out", "running_mean"},
    NamedArgument{"batch_norm_update_stats.out", "running_var"},
};

// Guards everything below but the entries' own atomics. Entries never move and never die.
struct Registry {
  std::shared_mutex mutex;
  std::deque<OperatorEntry> entries;
  std::unordered_map<std::string, OperatorEntry*> by_full_name;
  std::vector<c10::RegistrationHandleRAII> registrations;
  bool active = false;  // whether kernels are registered with PyTorch yet
  std::unordered_set<const OperatorEntry*>
      fallback_entries;  // reached through the fallback; never registered themselves
  ResolvedRoutes routes;
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

// As c10::toString writes it, without the stream: it is asked for thousands of overloads while torch is imported.
std::string full_name_of(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

bool is_generator(const c10::Argument& argument) {
  const auto* optional = argument.type()->castRaw<c10::OptionalType>();
  return optional != nullptr && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

OperatorEntry& add_entry(Registry& all, const c10::OperatorHandle& op) {
  OperatorEntry& entry = all.entries.emplace_back(op);
  const c10::OperatorName& name = op.operator_name();
  entry.full_name = full_name_of(name);
  entry.name = name.name.starts_with("aten::") ? entry.full_name.substr(6) : entry.full_name;
  entry.number = static_cast<uint32_t>(all.entries.size() - 1);
  TORCH_INTERNAL_ASSERT(entry.number < kFirstServedNumber, "flagos: too many operators");
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size() && i < 64; ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      entry.written |= uint64_t{1} << i;
    }
    if (is_generator(arguments[i])) {
      entry.generator_argument = static_cast<int>(i);
    }
  }
  const auto mark = [&entry, &arguments](std::span<const NamedArgument> table, uint64_t& positions) {
    for (const NamedArgument& row : table) {
      for (size_t i = 0; entry.name == row.overload && i < arguments.size() && i < 64; ++i) {
        positions |= arguments[i].name() == row.argument ? uint64_t{1} << i : 0;
      }
    }
  };
  mark(kCpuArguments, entry.cpu_arguments);
  mark(kUnannouncedWrites, entry.written_unannounced);
  entry.router = make_router(entry);
  all.by_full_name.emplace(entry.full_name, &entry);
  return entry;
}

void set_route(OperatorEntry& entry, const Route* route) {
  entry.route.store(route, std::memory_order_release);
  entry.direct.store(entry.backing_kernel && route->candidates.front().backend == accelerator_backend,
                     std::memory_order_release);
}

const Route* route_for(const Registry& all, const OperatorEntry& entry) {
  if (const auto found = all.routes.routes.find(entry.name); found != all.routes.routes.end()) {
    return found->second.route;
  }
  // A composite that a route named once keeps its kernel; without the route it is decomposed as before.
  return entry.routed_by_default ? all.routes.default_route.route : intern_route({{Backend::kNone}});
}

const CompiledOverload* compiled_overload(const std::string& name) {
  const auto table = compiled_overloads();
  const auto found =
      std::lower_bound(table.begin(), table.end(), name,
                       [](const CompiledOverload& row, const std::string& key) { return row.name < key; });
  return found != table.end() && found->name == name ? &*found : nullptr;
}

// Views and changes of metadata are the device's, whether it has a kernel of its own for them or not.
bool served_by_device(const c10::OperatorHandle& op, const std::string& name) {
  const std::vector<c10::Argument>& results = op.schema().returns();
  const bool view = std::any_of(results.begin(), results.end(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
  return view || op.hasTag(at::Tag::inplace_view) || is_served_by_device(name);
}

// An overload that PyTorch composes of others is left alone, at no cost, until a route names it.
void register_where_needed(Registry& all, OperatorEntry& entry) {
  if (entry.registered || all.fallback_entries.contains(&entry) ||
      !(entry.routed_by_default || all.routes.routes.contains(entry.name))) {
    return;
  }
  c10::KernelFunction kernel = entry.unboxed ? compiled_overload(entry.name)->make_kernel(entry)
                                             : c10::KernelFunction::makeFromBoxedKernel(entry.router);
  all.registrations.push_back(
      c10::Dispatcher::singleton().registerImpl(entry.op.operator_name(), c10::DispatchKey::PrivateUse1,
                                                std::move(kernel), std::nullopt, nullptr, "torch_fl router"));
  entry.registered = true;
}

// Operators that a library took away again (torch.library, tests). Their entries stay, since calls may hold them, but a
// new operator of that name gets an entry of its own. Filled by the dispatcher under its lock, so no other lock is
// taken here.
class RetiredOperators final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    const std::lock_guard lock(mutex_);
    names_.push_back(full_name_of(op.operator_name()));
    any_.store(true, std::memory_order_release);
  }

  std::vector<std::string> take() {
    if (!any_.load(std::memory_order_acquire)) {
      return {};
    }
    const std::lock_guard lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(names_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> names_;
  std::atomic<bool> any_{false};
};

RetiredOperators* retired_operators = nullptr;  // owned by the dispatcher; set once while the device is registered

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  route_call(entry_of(op), stack);
}

// The overloads equal but for aliasing marks and out arguments have the same family text.
std::string family_of(const c10::FunctionSchema& schema, Spelling spelling) {
  std::string base = schema.name();
  if (spelling == Spelling::kInPlace && base.ends_with('_')) {
    base.pop_back();
  }
  std::string text = base + "(";
  for (const c10::Argument& argument : schema.arguments()) {
    const bool out = argument.kwarg_only() && argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (!out) {
      text += argument.type()->str() + " " + argument.name() + ",";
    }
  }
  return text + ")";
}

Spelling spelling_of(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) {
      return argument.kwarg_only() ? Spelling::kOut : Spelling::kInPlace;
    }
  }
  return Spelling::kFunctional;
}

}  // namespace

void make_entries() {
  Registry& all = registry();
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  const auto composites = routed_composites();
  const std::unique_lock lock(all.mutex);
  if (!all.entries.empty()) {
    return;
  }
  for (const c10::OperatorName& operator_name : dispatcher.getAllOpNames()) {
    if (!operator_name.name.starts_with("aten::")) {
      continue;
    }
    const std::optional<c10::OperatorHandle> op = dispatcher.findSchema(operator_name);
    if (!op.has_value() || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
      continue;
    }
    // A kernel for an implicit composite switches its autograd off, unless it has a derivative of its own
    // (silu_backward).
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::Autograd)) {
      continue;
    }
    const std::string name = full_name_of(operator_name).substr(6);
    const bool kernel = op->hasKernelForDispatchKey(backing_target.key) ||
                        std::find(composites.begin(), composites.end(), name) != composites.end();
    const bool composite = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
                           op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
    if ((!kernel && !composite) || served_by_device(*op, name) || is_composed_here(name)) {
      continue;
    }
    OperatorEntry& entry = add_entry(all, *op);
    entry.routed_by_default = kernel;
    // On backing tensors a composite runs as the backing device would run it, but it may not draw from that device's
    // default generator.
    entry.backing_kernel = kernel || entry.generator_argument >= 0 || !op->hasTag(at::Tag::nondeterministic_seeded);
    if (const CompiledOverload* compiled = compiled_overload(name); compiled != nullptr) {
      entry.same_device = compiled->same_device;
      entry.unboxed = compiled->make_kernel != nullptr;
    }
  }
}

void register_routed_operators() {
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  all.active = true;
  for (OperatorEntry& entry : all.entries) {
    register_where_needed(all, entry);
  }
  auto listener = std::make_unique<RetiredOperators>();
  retired_operators = listener.get();
  all.registrations.push_back(c10::Dispatcher::singleton().addRegistrationListener(std::move(listener)));
  static torch::Library fallback(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  fallback.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

OperatorEntry& entry_of(const c10::OperatorHandle& op) {
  Registry& all = registry();
  const std::string full_name = full_name_of(op.operator_name());
  if (const std::vector<std::string> retired = retired_operators->take(); !retired.empty()) {
    const std::unique_lock lock(all.mutex);
    for (const std::string& name : retired) {
      all.by_full_name.erase(name);
    }
  }
  {
    const std::shared_lock lock(all.mutex);
    if (const auto found = all.by_full_name.find(full_name); found != all.by_full_name.end()) {
      return *found->second;
    }
  }
  const std::unique_lock lock(all.mutex);
  if (const auto found = all.by_full_name.find(full_name); found != all.by_full_name.end()) {
    return *found->second;
  }
  OperatorEntry& entry = add_entry(all, op);
  all.fallback_entries.insert(&entry);
  entry.backing_kernel = op.hasKernelForDispatchKey(backing_target.key);
  entry.routed_by_default = true;
  entry.same_device = false;
  if (backing_target.type != c10::DeviceType::CPU && !op.operator_name().name.starts_with("aten::")) {
    entry.cpu_arguments =
        ~uint64_t{0};  // a third party's kernel judges its own arguments, where it can tell them apart
  }
  set_route(entry, route_for(all, entry));
  return entry;
}

std::vector<const OperatorEntry*> all_entries() {
  Registry& all = registry();
  const std::shared_lock lock(all.mutex);
  std::vector<const OperatorEntry*> result;
  for (const OperatorEntry& entry : all.entries) {
    // An entry whose operator went and came back has a successor.
    if (const auto found = all.by_full_name.find(entry.full_name);
        found != all.by_full_name.end() && found->second == &entry) {
      result.push_back(&entry);
    }
  }
  return result;
}

std::string overload_name(uint32_t number) {
  if (number >= kFirstServedNumber) {
    return std::string(kServedOverloads.at(number - kFirstServedNumber).name);
  }
  Registry& all = registry();
  const std::shared_lock lock(all.mutex);
  return all.entries.at(number).name;
}

Catalogue make_catalogue() {
  Catalogue catalogue;
  catalogue.accelerator_backend = accelerator_backend;
  catalogue.accelerator_name = accelerator().name();
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& operator_name : dispatcher.getAllOpNames()) {
    const std::optional<c10::OperatorHandle> op = dispatcher.findSchema(operator_name);
    if (!op.has_value()) {
      continue;
    }
    const std::string full_name = full_name_of(operator_name);
    const std::string name = full_name.starts_with("aten::") ? full_name.substr(6) : full_name;
    OverloadFacts facts;
    facts.spelling = spelling_of(op->schema());
    facts.family = family_of(op->schema(), facts.spelling);
    facts.served_by_device = full_name.starts_with("aten::") && served_by_device(*op, name);
    catalogue.overloads.emplace(name, std::move(facts));
  }
  for (const OperatorEntry* entry : all_entries()) {
    OverloadFacts& facts = catalogue.overloads[entry->name];
    facts.routable = true;
    facts.backing_kernel = entry->backing_kernel;
    facts.routed_by_default = entry->routed_by_default;
  }
  return catalogue;
}

void apply_routes(const ResolvedRoutes& routes) {
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  all.routes = routes;
  for (OperatorEntry& entry : all.entries) {
    set_route(entry, route_for(all, entry));
    if (all.active) {
      register_where_needed(all, entry);
    }
  }
}

ResolvedRoutes applied_routes() {
  Registry& all = registry();
  const std::shared_lock lock(all.mutex);
  return all.routes;
}

}  // namespace flagos
