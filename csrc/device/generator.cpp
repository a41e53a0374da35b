// The flagos generator.
#include "device/generator.h"

#include "accelerator/accelerator.h"
#include "device/guard.h"

#include <c10/core/GeneratorImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <vector>

namespace flagos {
namespace {

class FlagosGenerator final : public c10::GeneratorImpl {
 public:
  FlagosGenerator(c10::DeviceIndex index, at::Generator backing)
      : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, index),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        backing_(std::move(backing)) {}

  const at::Generator& backing() const { return backing_; }

  void set_current_seed(uint64_t seed) override {
    const std::lock_guard lock(backing_.mutex());
    backing_.set_current_seed(seed);
  }
  uint64_t current_seed() const override {
    const std::lock_guard lock(backing_.mutex());
    return backing_.current_seed();
  }
  uint64_t seed() override {
    const std::lock_guard lock(backing_.mutex());
    return backing_.seed();
  }
  // torch pickles and deep-copies a generator with its offset, unless it is a CPU generator, which has none.
  void set_offset(uint64_t offset) override {
    if (has_no_offset()) {
      TORCH_CHECK(offset == 0, "the generator of ", device_, " has no offset, which must stay 0, but got: ", offset);
      return;
    }
    const std::lock_guard lock(backing_.mutex());
    backing_.set_offset(offset);
  }
  uint64_t get_offset() const override {
    if (has_no_offset()) {
      return 0;
    }
    const std::lock_guard lock(backing_.mutex());
    return backing_.get_offset();
  }
  void set_state(const c10::TensorImpl& state) override {
    const std::lock_guard lock(backing_.mutex());
    backing_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const std::lock_guard lock(backing_.mutex());
    return backing_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  bool has_no_offset() const { return backing_.device().is_cpu(); }

  FlagosGenerator* clone_impl() const override {
    const std::lock_guard lock(backing_.mutex());
    return c10::make_intrusive<FlagosGenerator>(device_.index(), backing_.clone()).release();
  }

  mutable at::Generator backing_;
};

}  // namespace

at::Generator make_generator(c10::DeviceIndex index) {
  const c10::DeviceIndex checked = check_device_index(index);
  return at::make_generator<FlagosGenerator>(checked, accelerator().make_generator(checked));
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static std::vector<at::Generator>& generators = *[] {
    auto* all = new std::vector<at::Generator>;  // never destroyed: kernels may draw until the process ends
    for (c10::DeviceIndex i = 0; i < accelerator().device_count(); ++i) {
      all->push_back(make_generator(i));
    }
    return all;
  }();
  return generators[static_cast<size_t>(check_device_index(index))];
}

at::Generator backing_generator(const std::optional<at::Generator>& generator, c10::DeviceIndex index) {
  const at::Generator& chosen = generator.has_value() && generator->defined() ? *generator : default_generator(index);
  TORCH_CHECK(chosen.device().type() == c10::DeviceType::PrivateUse1,
              "Expected a 'flagos' device type for generator but found '",
              c10::DeviceTypeName(chosen.device().type(), /*lower_case=*/true), "'");
  return static_cast<const FlagosGenerator*>(chosen.unsafeGetGeneratorImpl())->backing();
}

}  // namespace flagos
