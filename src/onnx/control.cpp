// Branches and loops: a branch may depend on elements (cond), how often a loop runs may not.
#include "tensor/control.h"

#include "src/core/needs_values.h"
#include "src/core/types_of.h"
#include "src/onnx/operators.h"

namespace tensor::onnx {
namespace {

// Both branches are recorded. One that is not taken may be wrong for these shapes, or give others:
// then only the condition's element tells.
Results recorded(const Call& c) {
  Results then, otherwise;
  try {
    then = c.run("then_branch", {}), otherwise = c.run("else_branch", {});
  } catch (const detail::NeedsValues&) {
    throw;
  } catch (const UserError& error) {
    detail::require_values(c[0], "condition",
                           std::string("both branches must run where it is compiled, and one has "
                                       "the error: ") +
                               error.what());
  }
  if (detail::types_of(then) != detail::types_of(otherwise))
    detail::require_values(c[0], "condition",
                           "its branches must give equal types where it is compiled: run it "
                           "eagerly");
  return detail::choose(c[0], then, otherwise);
}

Results if_of(const Call& c) {
  if (c[0].size() != 1) fail("if", "got ", c[0].size(), " conditions, need one");
  if (is_traced(c[0])) return recorded(c);
  return cond(
      c[0], [&] { return c.run("then_branch", {}); }, [&] { return c.run("else_branch", {}); });
}

constexpr std::int64_t kMostTrips = 1 << 16;

bool goes_on(const Tensor& condition) {
  detail::require_values(condition, "condition",
                         "how often a loop runs must not depend on the elements of the model's "
                         "inputs where it is compiled: run it eagerly");
  return condition.item<bool>();
}

// The body takes its number, the condition and what it hands on; it gives the condition, what it
// hands on, and a row of each of the last outputs.
Results loop(const Call& c) {
  const std::int64_t trips = c.has(0) ? c.host(0).item<std::int64_t>() : kMostTrips + 1;
  const auto carried = static_cast<std::size_t>(std::max(c.count() - 2, 0));
  const std::size_t rows = c.outputs() - std::min(c.outputs(), carried);
  bool is_on = !c.has(1) || c.host(1).item<bool>();
  std::vector<Tensor> state(c.all().begin() + std::min(2, c.count()), c.all().end());
  std::vector<std::vector<Tensor>> scanned(rows);
  for (std::int64_t i = 0; is_on && i < trips; ++i) {
    if (i >= kMostTrips) fail("loop", "runs more than ", kMostTrips, " times");
    std::vector<Tensor> inputs{full({}, i, i64), full({}, true)};
    inputs.insert(inputs.end(), state.begin(), state.end());
    const Results results = c.run("body", inputs);
    if (results.size() != 1 + carried + rows)
      fail("loop", "its body has ", results.size(), " outputs, need ", 1 + carried + rows);
    is_on = goes_on(results[0]);
    for (std::size_t k = 0; k < carried; ++k) state[k] = results[1 + k];
    for (std::size_t k = 0; k < rows; ++k) scanned[k].push_back(results[1 + carried + k]);
  }
  for (const std::vector<Tensor>& parts : scanned) {
    if (parts.empty())
      fail("loop", "never runs, so that the shape of what it collects is not known");
    state.push_back(stack(parts));
  }
  return state;
}

constexpr Operator kControlRows[] = {
    {"If", 1, 1, 1, Operator::kAny, "then_branch:g else_branch:g", if_of},
    {"Loop", 1, 2, Operator::kAny, Operator::kAny, "body:g", loop},
};

}  // namespace

std::span<const Operator> control_operators() { return kControlRows; }

}  // namespace tensor::onnx
