#include "models/c/tensors.h"

#include <algorithm>
#include <optional>

#include "models/common/preprocess.h"
#include "models/service/bytes.h"
#include "tensor/creation.h"
#include "tensor/io.h"

namespace models::c {

using tensor::Tensor;

namespace {

static_assert(TC_BOOL == static_cast<int>(tensor::boolean) &&
              TC_F64 == static_cast<int>(tensor::f64) && TC_F16 == static_cast<int>(tensor::f16));

bool is_type(int dtype) { return dtype >= TC_BOOL && dtype <= TC_F64; }

tensor::Dims dims(const char* what, const std::int64_t* values, std::size_t rank) {
  if (rank > static_cast<std::size_t>(tensor::kMaxRank))
    tensor::fail(what, "got ", rank, " axes, need at most ", tensor::kMaxRank);
  if (rank > 0) need(values, what);
  return tensor::Dims(std::span(values, rank));
}

/// Memory of the caller, who wants to know when it is not used any more.
std::shared_ptr<const void> owner_of(void (*release)(void*), void* user) {
  if (!release) return nullptr;
  return {static_cast<const void*>(""), [=](const void*) { release(user); }};
}

}  // namespace

tc_tensor* handle_of(Tensor x) {
  return Tensors::all().add(std::make_shared<TensorObject>(std::move(x)));
}

void write_type(tensor::DType dtype, const tensor::Shape* shape, tc_dtype* dtype_out, int* rank,
                std::int64_t* extents, std::size_t capacity) {
  if (extents && shape)
    std::copy_n(shape->begin(),
                std::min<std::size_t>(capacity, static_cast<std::size_t>(shape->rank())), extents);
  if (dtype_out) *dtype_out = static_cast<tc_dtype>(dtype);
  if (rank) *rank = shape ? shape->rank() : -1;
}

}  // namespace models::c

using namespace models::c;

tc_status tc_tensor_from_memory(void* data, int dtype, const int64_t* extents, size_t rank,
                                const int64_t* strides, void (*release)(void* user), void* user,
                                tc_tensor** tensor) {
  bool is_owned = false;
  const tc_status status = guarded([&] {
    need(tensor, "tensor");
    if (!is_type(dtype)) tensor::fail("dtype", "got ", dtype, ", need TC_BOOL to TC_F64");
    const std::shared_ptr<const void> owner = owner_of(release, user);
    is_owned = true;
    const tensor::Shape shape = dims("extents", extents, rank);
    if (tensor::num_elements(shape) > 0) check_pointer(data, "data");
    std::optional<tensor::Strides> steps;
    if (strides) steps = dims("strides", strides, rank);
    *tensor = handle_of(tensor::from_memory(data, shape, static_cast<tensor::DType>(dtype), owner,
                                            std::move(steps)));
  });
  if (!is_owned && release) release(user);
  return status;
}

tc_status tc_tensor_from_dlpack(struct DLManagedTensor* managed, tc_tensor** tensor) {
  return guarded([&] {
    need(managed, "managed");
    const tensor::Tensor x = tensor::from_dlpack(managed);
    need(tensor, "tensor");
    *tensor = handle_of(x);
  });
}

tc_status tc_tensor_to_dlpack(const tc_tensor* tensor, struct DLManagedTensor** managed) {
  return guarded([&] {
    need(managed, "managed");
    *managed = tensor::to_dlpack(Tensors::all().at(tensor)->value);
  });
}

tc_status tc_tensor_type(const tc_tensor* tensor, tc_dtype* dtype, int* rank, int64_t* extents,
                         size_t capacity) {
  return guarded([&] {
    const tensor::Tensor x = Tensors::all().at(tensor)->value;
    write_type(x.dtype(), &x.shape(), dtype, rank, extents, capacity);
  });
}

tc_status tc_tensor_device(const tc_tensor* tensor, int* gpu) {
  return guarded([&] {
    need(gpu, "gpu");
    const tensor::Device device = Tensors::all().at(tensor)->value.device();
    *gpu = device.is_cuda() ? device.index() : -1;
  });
}

tc_status tc_tensor_data(const tc_tensor* tensor, const void** data, size_t* size) {
  return guarded([&] {
    need(data, "data");
    need(size, "size");
    const std::shared_ptr<TensorObject> object = Tensors::all().at(tensor);
    std::call_once(object->is_ordered, [&] {
      object->ordered = object->value.is_contiguous() ? object->value : object->value.copy();
    });
    const std::span<const std::byte> bytes = models::service::bytes_of(object->ordered);
    *data = bytes.data();
    *size = bytes.size();
  });
}

tc_status tc_tensor_free(tc_tensor* tensor) {
  return guarded([&] { Tensors::all().remove(tensor); });
}

tc_status tc_tensor_from_picture(const void* bytes, size_t size, tc_tensor** tensor) {
  return guarded([&] {
    need(tensor, "tensor");
    *tensor = handle_of(tensor::decode_image(span_of(bytes, size), models::kImage));
  });
}

size_t tc_dtype_size(int dtype) {
  return is_type(dtype) ? static_cast<size_t>(tensor::item_size(static_cast<tensor::DType>(dtype)))
                        : 0;
}
