// A GPU that lowers kernels and runs none.
#pragma once

#include "src/runtime/program.h"

namespace tensor::testing {

struct NoEngine : detail::Engine {
  void run(const std::vector<Tensor>&, std::vector<Tensor>&,
           const std::stop_token&) const override {}
  std::vector<std::vector<double>> time(const std::vector<Tensor>&, int) const override {
    return {};
  }
  std::vector<double> time_whole(const std::vector<Tensor>&, int) const override { return {}; }
  void run_step(std::size_t, std::span<std::byte* const>) const override {}
  const std::vector<detail::Step>& steps() const override { return none; }
  std::vector<detail::Step> none;
};

/// A GPU of that compute capability, for programs that are not run.
inline detail::Target target_without_gpu(int capability) {
  detail::Target target = detail::cuda_target(cuda::typical_device(capability));
  target.build = [](const detail::Program&, std::unique_ptr<detail::Kernels>) {
    return std::make_unique<NoEngine>();
  };
  return target;
}

}  // namespace tensor::testing
