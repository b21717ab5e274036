#include "src/kernels/cuda/driver/tensor_map.h"

#include "tensor/error.h"

namespace tensor::cuda {

TensorMapBytes encode(Device& device, const TensorMapOf& view, Address base) {
  // CUtensorMapSwizzle and CUtensorMapL2promotion; no interleaving, zeros outside.
  constexpr int kSwizzle128 = 3, kPromote256 = 3;
  if (const std::string why = fault(view, base); !why.empty()) internal_error("tensor map", why);
  const auto rank = static_cast<unsigned>(view.extents.size());
  const std::vector<std::uint64_t> extents(view.extents.begin(), view.extents.end());
  // The driver reads an array of strides even where there is none.
  std::vector<std::uint64_t> strides(view.stride_bytes.begin(), view.stride_bytes.end());
  strides.push_back(0);
  std::vector<std::uint32_t> steps(view.steps.begin(), view.steps.end());
  if (steps.empty()) steps.assign(rank, 1);
  const Address memory = base + static_cast<Address>(view.memory.bytes);
  const int type = map_type(view.dtype), swizzle = view.swizzled ? kSwizzle128 : 0;
  TensorMapBytes map{};
  device.enter();
  const Driver& driver = Driver::get();
  if (view.im2col) {
    const TensorMapOf::Im2col& window = *view.im2col;
    device.check(driver.encode_im2col_map(&map, type, rank, memory, extents.data(), strides.data(),
                                          window.lower.data(), window.upper.data(),
                                          static_cast<unsigned>(window.channels),
                                          static_cast<unsigned>(window.pixels), steps.data(), 0,
                                          swizzle, kPromote256, 0),
                 "describing an image");
  } else {
    const std::vector<std::uint32_t> box(view.box.begin(), view.box.end());
    device.check(driver.encode_tensor_map(&map, type, rank, memory, extents.data(), strides.data(),
                                          box.data(), steps.data(), 0, swizzle, kPromote256, 0),
                 "describing a tensor");
  }
  return map;
}

}  // namespace tensor::cuda
