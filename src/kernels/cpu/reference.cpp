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

std::optional<double> estimate(const Graph& graph, const Group& group, const Machine& machine) {
  const auto time = reference_us(graph, group);
  return time ? std::optional(machine.dispatch_us + *time) : std::nullopt;
}

std::unique_ptr<Kernel> build(const LaidOutGraph& laid, const Group& group, const Machine&) {
  return std::make_unique<ReferenceKernel>(ReferenceOperator(laid, group));
}

}  // namespace

const Family kReference = {"reference", estimate, build};

}  // namespace tensor::cpu
