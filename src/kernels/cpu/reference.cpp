// The reference family: any single operator through its reference kernel.
#include "src/kernels/host/reference.h"

#include "src/kernels/cpu/families.h"

namespace tensor::cpu {
namespace {

class ReferenceKernel : public Kernel {
 public:
  explicit ReferenceKernel(ReferenceOperator reference) : reference_(std::move(reference)) {}
  void run(std::span<std::byte* const> operands, std::byte*) const override {
    reference_.run(operands);
  }
  std::string description() const override { return "reference"; }

 private:
  ReferenceOperator reference_;
};

std::optional<Implementation> consider(const Isolated& alone, const Machine& machine) {
  const auto time = reference_us(alone.laid.graph, alone.group);
  if (!time) return std::nullopt;
  return implementation(
      alone, machine, [time](const Machine& m) { return m.dispatch_us + *time; },
      [](const Isolated& one, const Machine&) {
        return std::make_unique<ReferenceKernel>(ReferenceOperator(one.laid, one.group));
      });
}

}  // namespace

const Family kReference = {"reference", consider};

}  // namespace tensor::cpu
