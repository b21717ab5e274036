#include "src/tune/gpu_difference.h"

#include <algorithm>
#include <vector>

#include "src/core/view.h"
#include "src/kernels/cuda/driver/load.h"
#include "src/kernels/cuda/family.h"
#include "src/kernels/cuda/generated/expression.h"

namespace tensor {
namespace {

constexpr int kThreads = 256;  // of a block, as in the text
constexpr int kBlocks = 1024;

// After Element's definition. Places and Found are as on the host.
constexpr const char* kText = R"(
struct Places {
  i64 count;
  int rank;
  i64 extents[16], strides[16];
};
struct Found {
  double difference, largest;
  void merge(const Found& other) {
    if (other.difference > difference) difference = other.difference;
    if (other.largest > largest) largest = other.largest;
  }
};
extern "C" __global__ __launch_bounds__(256)
void KERNEL(const Element* got, const Element* expected, Found* found, Places places) {
  wait_for_previous();
  __shared__ Found shared[256];
  Found mine = {0, 0};
  for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < places.count; i += gridDim.x * 256ll) {
    i64 at = 0, left = i;
    for (int axis = places.rank - 1; axis >= 0; --axis) {
      at += left % places.extents[axis] * places.strides[axis];
      left /= places.extents[axis];
    }
    const double x = convert<double>(value_of(got[at]));
    const double y = convert<double>(value_of(expected[at]));
    const double magnitude = y < 0 ? -y : y;
    if (magnitude > mine.largest && magnitude - magnitude == 0) mine.largest = magnitude;
    if (x == y || (x != x && y != y)) continue;
    const double difference = x < y ? y - x : x - y;  // NaN, where one of the two is
    if (difference != difference) mine.difference = kInfinity;
    if (difference > mine.difference) mine.difference = difference;
  }
  merge_threads<1, 256>(mine, shared);
  if (threadIdx.x == 0) found[blockIdx.x] = mine;
}
)";

struct Places {
  std::int64_t count;
  int rank = 0;
  std::int64_t extents[kMaxRank], strides[kMaxRank];

  // In the order in which they lie in memory.
  explicit Places(const ConstView& view) : count(num_elements(view.shape)) {
    for (const auto place : memory_order(view.strides)) {
      const int axis = static_cast<int>(place);
      const std::int64_t extent = view.shape[axis], stride = view.strides[axis];
      if (extent == 1) continue;
      if (rank > 0 && strides[rank - 1] == extent * stride) {
        extents[rank - 1] *= extent, strides[rank - 1] = stride;
      } else {
        extents[rank] = extent, strides[rank++] = stride;
      }
    }
  }
};

}  // namespace

cuda::Kernel& GpuDifference::kernel_for(DType dtype) {
  std::shared_ptr<cuda::Kernel>& kernel = kernels_[dtype];
  if (!kernel) {
    cuda::Call call;
    call.source.text = "#include \"reduce.h\"\nusing namespace tensor::device;\nusing Element = " +
                       std::string(cuda::device_type(dtype)) + ';' + kText;
    cuda::name_kernel(call, cuda::machine_of(device_->info()),
                      "difference_" + std::string(name(dtype)));
    kernel = cuda::load_kernel(*device_, call, cuda::compiled(call, device_->info()));
  }
  return *kernel;
}

GpuDifference::Found GpuDifference::operator()(const Tensor& like, cuda::Address got,
                                               cuda::Address expected) {
  Found all;
  if (like.size() == 0) return all;
  const Places places(const_view(like));
  const auto blocks = static_cast<std::size_t>(
      std::min<std::int64_t>(kBlocks, (places.count + kThreads - 1) / kThreads));
  std::vector<Found> parts(blocks);
  cuda::Buffer found(*device_, static_cast<std::int64_t>(blocks * sizeof(Found)));
  cuda::Stream stream(*device_);
  kernel_for(like.dtype())(stream, {.grid = {static_cast<unsigned>(blocks)}, .block = {kThreads}},
                           got, expected, found.address(), places);
  stream.synchronize();
  found.download(std::as_writable_bytes(std::span(parts)));
  for (const Found& part : parts) {
    all.difference = std::max(all.difference, part.difference);
    all.largest = std::max(all.largest, part.largest);
  }
  return all;
}

}  // namespace tensor
