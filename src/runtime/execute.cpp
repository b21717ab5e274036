// execute: one call of a program, in an arena from its pool.
#include "src/runtime/program.h"

namespace tensor::detail {
namespace {

// An arena for the time of a call; it goes back to the pool even when a kernel throws.
class Arena {
 public:
  explicit Arena(const Program& program) : pool_(*program.pool) {
    {
      const std::lock_guard lock(pool_.mutex);
      if (!pool_.free.empty()) {
        storage_ = std::move(pool_.free.back());
        pool_.free.pop_back();
      }
    }
    if (!storage_) storage_ = allocate(program.memory.bytes + program.scratch_bytes);
  }
  ~Arena() {
    const std::lock_guard lock(pool_.mutex);
    pool_.free.push_back(std::move(storage_));
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* data() const { return storage_->data; }

 private:
  Program::Pool& pool_;
  std::shared_ptr<Storage> storage_;
};

void check(std::string_view what, const std::vector<Tensor>& got,
           const std::vector<TensorType>& need) {
  if (got.size() != need.size())
    fail("run", "got ", got.size(), ' ', what, "s, need ", need.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(got[i].type() == need[i]))
      fail("run", what, ' ', i, " is ", got[i].type(), ", this executable was compiled for ",
           need[i], ": compile it again for other types");
}

}  // namespace

void execute(const Program& program, const std::vector<Tensor>& inputs,
             std::vector<Tensor>& outputs, const StepObserver& observe) {
  check("input", inputs, program.inputs);
  check("output", outputs, program.outputs);
  std::vector<Tensor> packed;  // kernels are compiled for contiguous inputs
  for (const Tensor& x : inputs) packed.push_back(x.is_contiguous() ? x : x.copy());
  for (const Tensor& x : outputs)
    if (!x.is_contiguous() || x.is_read_only())
      fail("run", "outputs must be contiguous and writable: use empty(shape, dtype)");

  const Arena arena(program);
  const auto address = [&](const Location& location) -> std::byte* {
    switch (location.place) {
      case Place::arena:
        return arena.data() + location.offset;
      case Place::input:
        return stored(packed[location.index]).first() + location.offset;
      case Place::output:
        return stored(outputs[location.index]).first() + location.offset;
      case Place::constant:
        return const_cast<std::byte*>(program.constants[location.index]) + location.offset;
    }
    return nullptr;
  };
  std::byte* const scratch = arena.data() + program.memory.bytes;
  std::vector<std::byte*> operands;
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    operands.clear();
    for (const Location& location : step.operands) operands.push_back(address(location));
    if (observe) observe(i, true);
    step.kernel->run(operands, scratch);
    if (observe) observe(i, false);
  }
}

}  // namespace tensor::detail
