// How each C++ argument and result type of an operator crosses to the backing device and back.
//
// An Argument<T> is made from the caller's value, gives the kernel's value by `get`, and is told by `finish` when the
// kernel has run. Types that hold no tensor, device or generator pass through.
#pragma once

#include "backing/call_frame.h"

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace flagos {

template <class T>
struct Argument {
  using Value = std::conditional_t<std::is_reference_v<T>, T, T>;
  Value value;

  Argument(CallFrame&, size_t, T given) : value(std::forward<T>(given)) {}
  T get(CallFrame&) { return std::forward<T>(value); }
  void finish(CallFrame&) {}
};

template <>
struct Argument<const at::Tensor&> {
  at::Tensor value;

  Argument(CallFrame& frame, size_t position, const at::Tensor& given) : value(frame.alias(given, position)) {}
  const at::Tensor& get(CallFrame&) { return value; }
  void finish(CallFrame&) {}
};

template <>
struct Argument<at::Tensor> : Argument<const at::Tensor&> {
  Argument(CallFrame& frame, size_t position, const at::Tensor& given)
      : Argument<const at::Tensor&>(frame, position, given) {}
  at::Tensor get(CallFrame&) { return value; }
};

template <>
struct Argument<at::Tensor&> {
  at::Tensor value;
  at::Tensor& front;

  Argument(CallFrame& frame, size_t position, at::Tensor& given) : value(frame.alias(given, position)), front(given) {}
  at::Tensor& get(CallFrame&) { return value; }
  void finish(CallFrame& frame) { frame.finish_written(value, front); }
};

template <>
struct Argument<const std::optional<at::Tensor>&> {
  std::optional<at::Tensor> value;

  Argument(CallFrame& frame, size_t position, const std::optional<at::Tensor>& given) {
    if (given.has_value()) {
      value = frame.alias(*given, position);
    }
  }
  const std::optional<at::Tensor>& get(CallFrame&) { return value; }
  void finish(CallFrame&) {}
};

template <>
struct Argument<at::TensorList> {
  c10::SmallVector<at::Tensor, 4> value;
  at::TensorList fronts;
  bool written;

  Argument(CallFrame& frame, size_t position, at::TensorList given) : fronts(given), written(frame.writes(position)) {
    value.reserve(given.size());
    for (const at::Tensor& tensor : given) {
      value.push_back(frame.alias(tensor, position));
    }
  }
  at::TensorList get(CallFrame&) { return value; }
  void finish(CallFrame& frame) {
    for (size_t i = 0; written && i < value.size(); ++i) {
      frame.finish_written(value[i], fronts[i]);
    }
  }
};

template <>
struct Argument<const at::ITensorListRef&> {
  c10::SmallVector<at::Tensor, 8> value;
  at::ITensorListRef list;

  Argument(CallFrame& frame, size_t position, const at::ITensorListRef& given) {
    value.reserve(given.size());
    for (const at::Tensor& tensor : given) {
      value.push_back(frame.alias(tensor, position));
    }
  }
  const at::ITensorListRef& get(CallFrame&) {
    list = at::ITensorListRef(at::TensorList(value));
    return list;
  }
  void finish(CallFrame&) {}
};

template <>
struct Argument<const c10::List<std::optional<at::Tensor>>&> {
  c10::List<std::optional<at::Tensor>> value;

  Argument(CallFrame& frame, size_t position, const c10::List<std::optional<at::Tensor>>& given) {
    value.reserve(given.size());
    for (const std::optional<at::Tensor>& tensor : given) {
      value.push_back(tensor.has_value() ? std::optional(frame.alias(*tensor, position)) : std::nullopt);
    }
  }
  const c10::List<std::optional<at::Tensor>>& get(CallFrame&) { return value; }
  void finish(CallFrame&) {}
};

template <>
struct Argument<std::optional<c10::Device>> {
  std::optional<c10::Device> value;

  Argument(CallFrame& frame, size_t, std::optional<c10::Device> given) : value(frame.backing_device(given)) {}
  std::optional<c10::Device> get(CallFrame&) { return value; }
  void finish(CallFrame&) {}
};

template <>
struct Argument<c10::Device> {
  c10::Device value;

  Argument(CallFrame& frame, size_t, c10::Device given) : value(*frame.backing_device(given)) {}
  c10::Device get(CallFrame&) { return value; }
  void finish(CallFrame&) {}
};

template <>
struct Argument<std::optional<at::Generator>> {
  std::optional<at::Generator> value;

  Argument(CallFrame&, size_t, std::optional<at::Generator> given) : value(std::move(given)) {}
  std::optional<at::Generator> get(CallFrame& frame) {
    return frame.backing_generator(value);  // when all tensors have told their device
  }
  void finish(CallFrame&) {}
};

/// Results returned by value.
template <class T>
struct Result {
  static void finish(CallFrame&, T&) {}
};

template <>
struct Result<at::Tensor> {
  static void finish(CallFrame& frame, at::Tensor& result) { frame.finish_result(result); }
};

template <>
struct Result<std::vector<at::Tensor>> {
  static void finish(CallFrame& frame, std::vector<at::Tensor>& results) {
    for (at::Tensor& result : results) {
      frame.finish_result(result);
    }
  }
};

template <class... T>
struct Result<std::tuple<T...>> {
  static void finish(CallFrame& frame, std::tuple<T...>& results) {
    std::apply([&frame](T&... result) { (Result<T>::finish(frame, result), ...); }, results);
  }
};

}  // namespace flagos
