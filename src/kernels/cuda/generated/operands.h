// Which of a group's operands a generated kernel names, and the call that runs it.
#pragma once

#include <string>
#include <vector>

#include "src/kernels/cuda/family.h"

namespace tensor::cuda {

/// Which operand of its call a value is: the group's reads, then its writes; -1 for neither.
int operand_of(const Group& group, ValueId id, bool is_write);

/// The operands of a call, in the order in which its text first names them.
class Operands {
 public:
  Operands(const Graph& graph, const Group& group) : graph_(graph), group_(group) {}

  /// "p3": the parameter of a value that is read or written.
  std::string pointer(ValueId id, bool is_write);
  /// "const Half* p0,\n    float* p3". Not __restrict__: the compiler may load what a kernel only
  /// reads before it has waited for the kernel that writes it.
  std::string parameters() const;
  std::vector<Argument> arguments() const;
  /// For the next call.
  void clear() { used_.clear(); }

 private:
  const Graph& graph_;
  const Group& group_;
  std::vector<int> used_;
};

/// A group that one call runs, described by the call's name without its hash.
Lowered lowered_as(Call call);

}  // namespace tensor::cuda
