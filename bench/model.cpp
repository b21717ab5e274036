#include "bench/model.h"

#include "tensor/creation.h"

namespace bench {
namespace {

Workload workload(const Model& model, int batch) {
  constexpr std::uint64_t kSeed = 1;
  const Network net = model.make();
  tensor::nn::randomize(net.parameters, kSeed);
  Workload work{.function = net.function,
                .inputs = {tensor::Generator(kSeed).normal(
                    {batch, 3, model.image.height, model.image.width})},
                .flops = 2.0 * batch * static_cast<double>(net.macs)};
  for (const auto& [name, parameter] : net.parameters) work.weights.emplace_back(name, *parameter);
  return work;
}

}  // namespace

std::vector<Case> cases(const std::vector<Model>& models, int batch) {
  std::vector<Case> made;
  for (const Model& model : models)
    made.push_back({model.name, [=](tensor::DType) { return workload(model, batch); }, batch});
  return made;
}

}  // namespace bench
