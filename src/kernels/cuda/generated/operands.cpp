#include "src/kernels/cuda/generated/operands.h"

#include <algorithm>

#include "src/kernels/cuda/generated/expression.h"

namespace tensor::cuda {

int operand_of(const Group& group, ValueId id, bool is_write) {
  const auto& values = is_write ? group.writes : group.reads;
  const auto at = std::find(values.begin(), values.end(), id);
  if (at == values.end()) return -1;
  return static_cast<int>(at - values.begin()) +
         (is_write ? static_cast<int>(group.reads.size()) : 0);
}

std::string Operands::pointer(ValueId id, bool is_write) {
  const int operand = operand_of(group_, id, is_write);
  if (std::find(used_.begin(), used_.end(), operand) == used_.end()) used_.push_back(operand);
  return "p" + std::to_string(operand);
}

std::string Operands::parameters() const {
  const auto reads = static_cast<int>(group_.reads.size());
  std::string text;
  for (const int operand : used_) {
    const bool is_read = operand < reads;
    const ValueId id = is_read ? group_.reads[static_cast<std::size_t>(operand)]
                               : group_.writes[static_cast<std::size_t>(operand - reads)];
    text += (text.empty() ? "" : ",\n    ") + std::string(is_read ? "const " : "") +
            std::string(device_type(graph_.type(id).dtype)) + "* p" + std::to_string(operand);
  }
  return text;
}

std::vector<Argument> Operands::arguments() const {
  std::vector<Argument> arguments;
  for (const int operand : used_)
    arguments.emplace_back(Pointer{Pointer::Base::operand, operand, 0});
  return arguments;
}

Lowered lowered_as(Call call) {
  Lowered lowered;
  lowered.description = description_of(call);
  lowered.calls.push_back(std::move(call));
  return lowered;
}

}  // namespace tensor::cuda
