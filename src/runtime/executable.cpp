// The members of Executable that ask its program; those that write files are beside their formats.
#include "tensor/executable.h"

#include "src/runtime/program.h"

namespace tensor {

Sharing::Sharing() : common_(std::make_shared<detail::Common>()) {}

std::vector<Tensor> Executable::operator()(const std::vector<Tensor>& inputs) const {
  return detail::execute(*program_, inputs);
}

void Executable::run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) const {
  detail::execute(*program_, inputs, outputs);
}

std::vector<double> Executable::time(const std::vector<Tensor>& inputs, int repeats) const {
  detail::check_inputs(*program_, inputs);
  return program_->engine->time_whole(inputs, repeats);
}

const std::vector<TensorType>& Executable::input_types() const { return program_->inputs; }
const std::vector<TensorType>& Executable::output_types() const { return program_->outputs; }
std::int64_t Executable::arena_bytes() const { return program_->placement.memory.bytes; }
std::int64_t Executable::arena_lower_bound() const {
  return program_->placement.memory.lower_bound;
}
DeviceMemory Executable::device_memory() const { return program_->common->memory_of(*program_); }
std::size_t Executable::group_count() const { return program_->plan.groups.size(); }

}  // namespace tensor
