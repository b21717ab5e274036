// DLPack: tensors to and from other libraries without copying.
#include <dlpack/dlpack.h>

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "src/core/storage.h"
#include "src/core/view.h"
#include "src/io/elements.h"
#include "tensor/creation.h"
#include "tensor/error.h"
#include "tensor/io.h"

namespace tensor {
namespace {

struct TypeRow {
  DType dtype;
  DLDataTypeCode code;
  std::uint8_t bits;
};
// DLPack has it since 0.8; Debian's header is of 0.6.
constexpr auto kDLPackBool = static_cast<DLDataTypeCode>(6);
constexpr TypeRow kTypes[] = {{boolean, kDLPackBool, 8}, {u8, kDLUInt, 8},      {i8, kDLInt, 8},
                              {i16, kDLInt, 16},         {i32, kDLInt, 32},     {i64, kDLInt, 64},
                              {f16, kDLFloat, 16},       {bf16, kDLBfloat, 16}, {f32, kDLFloat, 32},
                              {f64, kDLFloat, 64}};

// What a capsule of ours keeps alive.
struct Exported {
  DLManagedTensor managed{};
  Tensor x;
  Shape shape;
  Strides strides;
};

DLDataType type_of(DType dtype) {
  for (const TypeRow& row : kTypes)
    if (row.dtype == dtype) return {static_cast<std::uint8_t>(row.code), row.bits, 1};
  internal_error("to_dlpack", "no row for ", dtype);
}

DType dtype_of_capsule(const DLDataType& type) {
  if (type.lanes != 1) fail("from_dlpack", "got elements of ", type.lanes, " lanes, need 1");
  for (const TypeRow& row : kTypes)
    if (row.code == type.code && row.bits == type.bits) return row.dtype;
  fail("from_dlpack", "got elements of code ", int{type.code}, " and ", int{type.bits},
       " bits, which this library does not hold");
}

// The bytes from the lowest element to the end of the highest must be countable.
void check_extent(const Shape& shape, const Strides& strides, DType dtype) {
  const auto bytes = checked_bytes({shape, dtype});
  std::int64_t reach = 0;
  bool overflow = !bytes;
  for (int axis = 0; axis < shape.rank() && !overflow; ++axis) {
    std::int64_t step = 0;
    overflow = __builtin_mul_overflow(strides[axis], item_size(dtype), &step) ||
               __builtin_mul_overflow(step, step < 0 ? -shape[axis] : shape[axis], &step) ||
               __builtin_add_overflow(reach, step, &reach);
  }
  if (overflow)
    fail("from_dlpack", "the shape ", shape, " with strides ", strides,
         " takes more than 2^63 bytes");
}

Device device_of(const DLDevice& device) {
  constexpr auto kManaged = static_cast<DLDeviceType>(13);  // kDLCUDAManaged, since 0.7
  if (device.device_type == kDLCPU) return {};
  if (device.device_type == kDLCUDA || device.device_type == kManaged)
    return Device("cuda:" + std::to_string(device.device_id));
  fail("from_dlpack", "got a tensor on the device type ", static_cast<int>(device.device_type),
       ", need the CPU (", static_cast<int>(kDLCPU), ") or a GPU of NVIDIA (",
       static_cast<int>(kDLCUDA), ")");
}

Tensor adopt(const DLTensor& x, std::shared_ptr<const void> owner) {
  const Device device = device_of(x.device);
  const DType dtype = dtype_of_capsule(x.dtype);
  if (x.ndim < 0 || x.ndim > kMaxRank)
    fail("from_dlpack", "got ", x.ndim, " axes, need 0 to ", kMaxRank);
  if (x.ndim > 0 && !x.shape) fail("from_dlpack", "got no shape for ", x.ndim, " axes");
  const auto rank = static_cast<std::size_t>(x.ndim);
  const Shape shape(std::span<const std::int64_t>(x.shape, rank));
  for (const auto extent : shape)
    if (extent < 0) fail("from_dlpack", "got the shape ", shape, ", need extents of at least 0");
  if (!checked_bytes({shape, dtype}))
    fail("from_dlpack", "the shape ", shape, " takes more than 2^63 bytes");
  const Strides strides =
      x.strides ? Strides(std::span<const std::int64_t>(x.strides, rank)) : row_major(shape);
  check_extent(shape, strides, dtype);
  if (num_elements(shape) == 0) return empty(shape, dtype, device);
  if (!x.data) fail("from_dlpack", "got no memory for the shape ", shape);
  auto* const first = static_cast<std::byte*>(x.data) + x.byte_offset;
  if (reinterpret_cast<std::uintptr_t>(first) % static_cast<std::uintptr_t>(item_size(dtype)) != 0)
    fail("from_dlpack", "the elements of ", dtype, " are not aligned to their size");
  if (device.is_cuda()) return from_memory(first, shape, dtype, std::move(owner), device, strides);
  if (dtype == boolean) check_bools("from_dlpack", first, shape, strides);
  return from_memory(static_cast<void*>(first), shape, dtype, std::move(owner), strides);
}

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& x) {
  // DLPack 0.6 cannot say "do not write"; NumPy refuses for the same reason.
  detail::placed(x, "to_dlpack");
  if (x.is_read_only())
    fail("to_dlpack",
         "this tensor must not be written (a mapped file, a broadcast): pass a copy()");
  detail::about_to_expose(*detail::impl(x).storage);
  auto exported = std::make_unique<Exported>();
  exported->x = x;
  exported->shape = x.shape();
  exported->strides = x.strides();
  DLTensor& view = exported->managed.dl_tensor;
  view.data = detail::placed(x).first();
  view.device = x.device().is_cuda() ? DLDevice{kDLCUDA, x.device().index()} : DLDevice{kDLCPU, 0};
  view.ndim = x.rank();
  view.dtype = type_of(x.dtype());
  view.shape = exported->shape.begin();
  view.strides = exported->strides.begin();
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<Exported*>(self->manager_ctx);
  };
  return &exported.release()->managed;
}

Tensor from_dlpack(DLManagedTensor* managed) {
  if (!managed) fail("from_dlpack", "got a null pointer");
  const std::shared_ptr<const void> owner(managed, [managed](const void*) {
    if (managed->deleter) managed->deleter(managed);
  });
  return adopt(managed->dl_tensor, owner);
}

}  // namespace tensor
