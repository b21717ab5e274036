// Comparing results on the GPU, where they lie: of gigabytes, copies to the host would take longer
// than all else of a trial.
#pragma once

#include <map>
#include <memory>

#include "src/kernels/cuda/driver/device.h"
#include "tensor/tensor.h"

namespace tensor {

class GpuDifference {
 public:
  explicit GpuDifference(cuda::Device& device) : device_(&device) {}

  struct Found {
    double difference = 0;  // the largest; infinite where one of the two is NaN and the other not
    double largest = 0;     // finite magnitude of what is expected
  };
  /// Of two values of the type and layout of `like`, whose first elements have these addresses. Not
  /// for several threads at a time.
  Found operator()(const Tensor& like, cuda::Address got, cuda::Address expected);

 private:
  cuda::Kernel& kernel_for(DType dtype);
  cuda::Device* device_;
  std::map<DType, std::shared_ptr<cuda::Kernel>> kernels_;
};

}  // namespace tensor
