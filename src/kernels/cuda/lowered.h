// A group as kernels: descriptions of launches and their arguments, which need no GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "src/kernels/cuda/kernel_source.h"
#include "tensor/tensor.h"

namespace tensor::cuda {

/// Where an argument points: into an operand (the group's reads, then its writes), a constant that
/// was packed for the group, or its scratch.
struct Pointer {
  enum class Base : std::uint8_t { operand, packed, scratch } base = Base::operand;
  int index = 0;
  std::int64_t bytes = 0;  // from the base
};

/// A view of memory for the tensor memory accelerator (CUDA driver API, cuTensorMapEncodeTiled and
/// cuTensorMapEncodeIm2col): extents and strides from the fastest axis on, which has stride 1.
struct TensorMapOf {
  Pointer memory = {};
  DType dtype = f16;
  std::vector<std::int64_t> extents;       // in elements; 1 to 5
  std::vector<std::int64_t> stride_bytes;  // of all axes but the first: multiples of 16
  std::vector<int> box = {};               // elements of every axis; not for im2col
  std::vector<int> steps = {};             // between elements of a box, 1 where left out
  bool swizzled = true;  // the box's rows are 128 bytes, exchanged in chunks of 16
  struct Im2col {
    std::vector<int> lower, upper;  // of the window's corner, from the fastest axis of space on
    int channels = 0, pixels = 0;   // of a box
  };
  std::optional<Im2col> im2col = {};
};

/// One parameter of a kernel: an address, a tensor map (a __grid_constant__ TensorMap), or a number
/// or struct as it lies in memory.
using Argument = std::variant<Pointer, TensorMapOf, std::vector<std::byte>>;
template <class T>
Argument value_argument(const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  return std::vector<std::byte>(bytes, bytes + sizeof(T));
}

/// A launch of one kernel. Every kernel calls wait_for_previous() (templates/ptx.h) before it reads
/// what earlier kernels wrote or writes anything, and may call launch_next() before.
struct Call {
  KernelSource source;
  std::string entry;  // the function's name, by the grammar of name_kernel
  Launch launch;
  std::vector<Argument> arguments;
};

/// A group as kernels, in order.
struct Lowered {
  std::vector<Call> calls;
  /// Constants that the group reads, in the form its kernels want: made once, when linked.
  struct Packed {
    std::vector<int> operands;
    std::string form;  // of that name: all that the result depends on besides the constants
    std::function<Tensor(const std::vector<Tensor>&)> pack;
  };
  std::vector<Packed> packed;
  std::int64_t scratch_bytes = 0;  // aligned to 1,024
  /// What runs, for the report: "sm90a_gemm_f16_f32_128x128x64_s4_add".
  std::string description;
  /// Instead of calls: runs on the host, on operands copied there and back.
  std::function<void(std::span<std::byte* const>)> on_host;
  /// Instead of calls: so many elements of the one that is read, which lie together, are added up
  /// over the devices that divide the program's products (Communicator).
  std::int64_t all_reduced = 0;
};

}  // namespace tensor::cuda
