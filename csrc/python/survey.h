// What the survey adds to the extension module.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace flagos {

/// Defines `verdicts` and `run_isolated` in `module`; torch_fl/survey.py is their only caller.
void define_survey(pybind11::module_& module);

}  // namespace flagos
