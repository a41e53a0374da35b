// Walking over the tensors of a stack's values.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <utility>

namespace flagos {

/// `value` with every tensor in it, at any depth of lists, replaced by `convert(tensor)`. Values without tensors come
/// back as they are; an undefined tensor is converted too.
template <class Convert>
c10::IValue map_tensors(const c10::IValue& value, const Convert& convert) {
  if (value.isTensor()) {
    return c10::IValue(convert(value.toTensor()));
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> result;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      result.push_back(convert(tensor));
    }
    return c10::IValue(std::move(result));
  }
  if (!value.isList() || value.isIntList() || value.isDoubleList() || value.isBoolList()) {
    return value;
  }
  const c10::List<c10::IValue> given = value.toList();
  c10::impl::GenericList result(given.elementType());
  for (size_t i = 0; i < given.size(); ++i) {
    result.push_back(map_tensors(given.get(i), convert));
  }
  return c10::IValue(std::move(result));
}

/// `visit(a, b)` for each tensor of `first` and the one in the same place of `second`, for a tensor or a list of
/// tensors.
template <class Visit>
void visit_tensor_pairs(const c10::IValue& first, const c10::IValue& second, const Visit& visit) {
  if (first.isTensor()) {
    visit(first.toTensor(), second.toTensor());
  } else if (first.isTensorList()) {
    const std::vector<at::Tensor> firsts = first.toTensorVector();
    const std::vector<at::Tensor> seconds = second.toTensorVector();
    for (size_t i = 0; i < firsts.size(); ++i) {
      visit(firsts[i], seconds[i]);
    }
  }
}

}  // namespace flagos
