// tensor/interop.h.
#include "tensor/interop.h"

#include "src/core/storage.h"
#include "src/kernels/cuda/driver/device.h"
#include "src/runtime/program.h"

namespace tensor {

void* device_pointer(const Tensor& x) {
  const detail::TensorImpl& impl = detail::placed(x, "device_pointer");
  if (x.is_read_only())
    fail("device_pointer",
         "this tensor must not be written (a mapped file, a broadcast): pass a "
         "copy()");
  detail::about_to_expose(*impl.storage);
  return impl.first();
}

std::vector<Tensor> enqueue(const Executable& executable, const std::vector<Tensor>& inputs,
                            CudaStream stream) {
  return detail::enqueue(executable.program(), inputs, stream);
}

void enqueue(const Executable& executable, const std::vector<Tensor>& inputs,
             std::vector<Tensor>& outputs, CudaStream stream) {
  detail::enqueue(executable.program(), inputs, outputs, stream);
}

void synchronize(const Device& device, CudaStream stream) {
  if (!device.is_cuda()) return;
  cuda::Device& gpu = cuda::Device::get(device.index());
  cuda::Stream(gpu, static_cast<cuda::StreamHandle*>(stream)).synchronize();
}

}  // namespace tensor
