// The unboxed kernel of a signature: the hot path of every routed overload that has it.
#pragma once

#include "backing/arguments.h"
#include "backing/overload_table.h"

#include <ATen/core/boxing/KernelFunction.h>

#include <memory>

namespace flagos {

template <class T>
struct IsTensorReferenceTuple : std::false_type {};
template <class... T>
struct IsTensorReferenceTuple<std::tuple<T...>>
    : std::bool_constant<(sizeof...(T) > 0) && (std::is_same_v<T, at::Tensor&> && ...)> {};

template <class Signature>
class UnboxedKernel;

/// Runs the overload on the backing device when its route says so and nobody listens; hands any other call to the
/// router.
template <class R, class... A>
class UnboxedKernel<R(A...)> final : public c10::OperatorKernel {
 public:
  explicit UnboxedKernel(OperatorEntry& entry) : entry_(entry), op_(entry.op.typed<R(A...)>()) {}

  R operator()(c10::DispatchKeySet keys, A... arguments) {
    if (C10_LIKELY(entry_.runs_directly())) {
      return run(std::index_sequence_for<A...>(), std::forward<A>(arguments)...);
    }
    return c10::impl::BoxedKernelWrapper<R(A...)>::call(entry_.router, entry_.op, keys, std::forward<A>(arguments)...);
  }

 private:
  template <size_t... I>
  R run(std::index_sequence<I...>, A... arguments) {
    CallFrame frame(entry_);
    std::tuple<Argument<A>...> converted{Argument<A>(frame, I, std::forward<A>(arguments))...};
    const c10::DispatchKeySet backing(backing_target.key);
    if constexpr (std::is_void_v<R>) {
      op_.redispatch(backing, std::get<I>(converted).get(frame)...);
      finish(frame, converted, std::index_sequence<I...>());
    } else if constexpr (std::is_same_v<R, at::Tensor&>) {
      op_.redispatch(backing, std::get<I>(converted).get(frame)...);
      finish(frame, converted, std::index_sequence<I...>());
      return std::get<0>(written<1>(arguments...));
    } else if constexpr (IsTensorReferenceTuple<R>::value) {
      op_.redispatch(backing, std::get<I>(converted).get(frame)...);
      finish(frame, converted, std::index_sequence<I...>());
      return written<std::tuple_size_v<R>>(arguments...);
    } else {
      R result = op_.redispatch(backing, std::get<I>(converted).get(frame)...);
      finish(frame, converted, std::index_sequence<I...>());
      Result<R>::finish(frame, result);
      return result;
    }
  }

  template <size_t... I>
  void finish(CallFrame& frame, std::tuple<Argument<A>...>& converted, std::index_sequence<I...>) {
    (std::get<I>(converted).finish(frame), ...);
    count_call({entry_.number, accelerator_backend, Reason::kRouted, frame.dtypes()});
  }

  // The last `Count` arguments of type Tensor&: what in-place and out spellings return.
  template <size_t Count, class... T>
  static auto written(T&... arguments) {
    auto all = std::tuple_cat(written_one<A>(arguments)...);
    constexpr size_t kAll = std::tuple_size_v<decltype(all)>;
    static_assert(kAll >= Count);
    return [&all]<size_t... J>(std::index_sequence<J...>) {
      return std::tie(std::get<kAll - Count + J>(all)...);
    }(std::make_index_sequence<Count>());
  }

  template <class Declared, class T>
  static auto written_one(T& argument) {
    if constexpr (std::is_same_v<Declared, at::Tensor&>) {
      return std::tuple<at::Tensor&>(argument);
    } else {
      return std::tuple<>();
    }
  }

  OperatorEntry& entry_;
  c10::TypedOperatorHandle<R(A...)> op_;
};

template <class Signature>
c10::KernelFunction make_unboxed_kernel(OperatorEntry& entry) {
  return c10::KernelFunction::makeFromUnboxedFunctor<false, UnboxedKernel<Signature>>(
      std::make_unique<UnboxedKernel<Signature>>(entry));
}

}  // namespace flagos
