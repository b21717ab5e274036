#include "tensor/control.h"

#include "src/core/storage.h"
#include "src/ops/op.h"
#include "tensor/ops.h"

namespace tensor::detail {
namespace {

void check_condition(const Tensor& condition, const char* where) {
  if (condition.dtype() == boolean && condition.size() == 1) return;
  fail(where, "got a condition of ", condition.type(), ", need one element of bool",
       condition.size() == 1 ? ": compare it with something" : ": reduce it with all() or any()");
}

}  // namespace

bool is_known(const Tensor& condition) { return !impl(condition).recorder; }

bool holds(const Tensor& condition, const char* where) {
  check_condition(condition, where);
  return condition.item<bool>();
}

std::vector<Tensor> choose(const Tensor& condition, const std::vector<Tensor>& then,
                           const std::vector<Tensor>& otherwise) {
  check_condition(condition, "cond");
  if (then.size() != otherwise.size())
    fail("cond", "got ", then.size(), " tensors where the condition is true and ", otherwise.size(),
         " where it is false, need as many");
  const Tensor flag = reshape(condition, {});
  std::vector<Tensor> chosen;
  for (std::size_t i = 0; i < then.size(); ++i) {
    if (!(then[i].type() == otherwise[i].type()))
      fail("cond", "got ", then[i].type(), " where the condition is true and ", otherwise[i].type(),
           " where it is false, need equal types");
    chosen.push_back(apply_op(Op::where, {flag, then[i], otherwise[i]}, {{kLazy, true}}));
  }
  return chosen;
}

}  // namespace tensor::detail
