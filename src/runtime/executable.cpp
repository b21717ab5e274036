// The members of Executable that ask its program; those that write files are beside their formats.
#include "tensor/executable.h"

#include "src/runtime/program.h"

namespace tensor {
namespace {

std::vector<const detail::Program*> programs_of(const detail::Program& program) {
  if (!program.parts) return {&program};
  std::vector<const detail::Program*> all;
  for (std::size_t i = 0; i < program.parts->size(); ++i) all.push_back(&(*program.parts)[i]);
  return all;
}

template <class F>
std::int64_t sum_of(const detail::Program& program, const F& bytes) {
  std::int64_t sum = 0;
  for (const detail::Program* part : programs_of(program)) sum += bytes(*part);
  return sum;
}

}  // namespace

Sharing::Sharing() : common_(std::make_shared<detail::Common>()) {}

std::vector<Tensor> Executable::operator()(const std::vector<Tensor>& inputs) const {
  return detail::execute(*program_, inputs);
}

void Executable::run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) const {
  detail::execute(*program_, inputs, outputs);
}

void Executable::run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
                     const std::stop_token& stop) const {
  detail::execute(*program_, inputs, outputs, stop);
}

std::vector<double> Executable::time(const std::vector<Tensor>& inputs, int repeats) const {
  detail::check_inputs(*program_, inputs);
  return program_->parts ? program_->parts->time_whole(inputs, repeats)
                         : program_->engine->time_whole(inputs, repeats);
}

const std::vector<TensorType>& Executable::input_types() const { return program_->inputs; }
const std::vector<TensorType>& Executable::output_types() const { return program_->outputs; }

std::int64_t Executable::arena_bytes() const {
  return sum_of(*program_, [](const auto& part) { return part.placement.memory.bytes; });
}
std::int64_t Executable::arena_lower_bound() const {
  return sum_of(*program_, [](const auto& part) { return part.placement.memory.lower_bound; });
}
std::size_t Executable::group_count() const {
  return programs_of(*program_).front()->plan.groups.size();
}

std::vector<std::pair<Device, DeviceMemory>> Executable::memory_by_device() const {
  std::vector<std::pair<Device, DeviceMemory>> result;
  for (const detail::Program* part : programs_of(*program_))
    result.emplace_back(part->target.device, part->common->memory_of(*part));
  return result;
}

DeviceMemory Executable::device_memory() const {
  DeviceMemory all;
  for (const auto& [device, memory] : memory_by_device()) {
    all.weights += memory.weights, all.arena += memory.arena;
    all.other += memory.other, all.shared += memory.shared;
  }
  return all;
}

}  // namespace tensor
