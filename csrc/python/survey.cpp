// Translation between torch_fl/survey.py and the isolated runner, and who holds the GIL when.
#include "python/survey.h"

#include "survey/isolated_runner.h"

#include <torch/csrc/Exceptions.h>

#include <utility>

namespace flagos {
namespace {

namespace py = pybind11;

py::list verdicts_list() {
  py::list names;
  for (const Verdict verdict : all_verdicts()) {
    names.append(std::string(verdict_name(verdict)));
  }
  return names;
}

// `body` answers (name of a verdict, detail in bytes).
CaseResult call_body(const py::function& body, size_t case_index) {
  const py::gil_scoped_acquire gil;
  try {
    const auto [name, detail] = body(case_index).cast<std::pair<std::string, py::bytes>>();
    const std::optional<Verdict> verdict = parse_verdict(name);
    TORCH_CHECK_VALUE(verdict.has_value(), "unknown verdict '", name, "'");
    return {*verdict, static_cast<std::string>(detail)};
  } catch (const std::exception& error) {
    // Its text is taken here: what() of a Python error and its destruction need the GIL.
    return {Verdict::kError, error.what()};
  }
}

void call_set_up(const py::function& set_up) {
  const py::gil_scoped_acquire gil;
  std::string failure;
  try {
    set_up();
    return;
  } catch (const py::error_already_set& error) {
    failure = error.what();
  }
  throw std::runtime_error(failure);
}

// The core runs without the GIL, and each call into Python takes it: other threads of the program go on meanwhile. In a
// worker the thread that forked is the only one, and os.fork has put the interpreter in order before it returns.
void run_isolated_from_python(size_t cases, const py::function& body, const py::function& on_outcome,
                              const py::function& set_up, const py::function& fork, int64_t workers,
                              double case_seconds) {
  TORCH_CHECK_VALUE(workers >= 1, "workers must be 1 or more, not ", workers);
  TORCH_CHECK_VALUE(case_seconds > 0 && case_seconds <= 1e9,
                    "timeout_seconds must be more than 0 and at most 1e9, not ", case_seconds);
  IsolatedRunnerOptions options;
  options.workers = static_cast<size_t>(workers);
  options.case_limit =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(case_seconds));
  options.set_up = [&] { call_set_up(set_up); };
  options.check = [] {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) {
      throw py::error_already_set();
    }
  };
  options.fork = [&] {
    const py::gil_scoped_acquire gil;
    return fork().cast<pid_t>();
  };
  const auto hear = [&](const Outcome& outcome) {
    const py::gil_scoped_acquire gil;
    on_outcome(outcome.case_index, std::string(verdict_name(outcome.verdict)), py::bytes(outcome.detail),
               py::bytes(outcome.output), outcome.signal, outcome.seconds, outcome.worker);
  };
  const py::gil_scoped_release no_gil;
  run_isolated(cases, [&](size_t case_index) { return call_body(body, case_index); }, hear, options);
}

}  // namespace

void define_survey(py::module_& module) {
  module.def("verdicts", torch::wrap_pybind_function(&verdicts_list));
  module.def("run_isolated", torch::wrap_pybind_function(&run_isolated_from_python));
}

}  // namespace flagos
