// The Tensor handle: access to its impl with the checks that the header promises. The methods that
// are operators are in src/ops/methods.cpp.
#include "tensor/handle.h"

#include <cstdint>
#include <ostream>

#include "src/core/device_seam.h"
#include "src/core/dispatch.h"
#include "src/core/storage.h"
#include "src/core/view.h"
#include "tensor/creation.h"

namespace tensor {
namespace {

template <class T>
Tensor weak_scalar(T value) {
  Tensor result = empty({}, dtype_of<T>());
  *mutable_view(result).as<T>() = value;
  detail::TensorImpl impl = detail::impl(result);
  impl.weak = true;
  return detail::make_tensor(std::move(impl));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const TensorType& type) {
  return out << type.dtype << type.shape;
}

Tensor Tensor::from_number(bool value) { return weak_scalar(value); }
Tensor Tensor::from_number(std::int64_t value) { return weak_scalar(value); }
Tensor Tensor::from_number(double value) { return weak_scalar(value); }

DType Tensor::dtype() const { return detail::impl(*this).type.dtype; }
const Shape& Tensor::shape() const { return detail::impl(*this).type.shape; }
std::int64_t Tensor::shape(int axis) const {
  return shape()[normalize_axis(axis, rank(), "shape")];
}
const Strides& Tensor::strides() const { return detail::impl(*this).strides; }
std::int64_t Tensor::size() const { return num_elements(shape()); }
std::int64_t Tensor::nbytes() const { return size() * item_size(dtype()); }
bool Tensor::is_contiguous() const { return tensor::is_contiguous(shape(), strides()); }
bool Tensor::is_weak() const { return detail::impl(*this).weak; }
bool Tensor::is_read_only() const {
  const detail::TensorImpl& self = detail::placed(*this, "is_read_only");
  return self.storage->read_only || self.overlapping;
}
bool Tensor::shares_storage(const Tensor& other) const {
  constexpr std::string_view kWhere = "shares_storage";
  return detail::placed(*this, kWhere).storage->owner ==
         detail::placed(other, kWhere).storage->owner;
}

Device Tensor::device() const {
  const detail::TensorImpl& self = detail::impl(*this);
  return self.recorder ? Device() : self.storage->device;
}

Tensor Tensor::to(const Device& device) const {
  const Device here = this->device();
  if (here == device || detail::impl(*this).recorder) return *this;
  if (here.is_cuda() && device.is_cuda()) return to(Device()).to(device);
  const Tensor from = is_contiguous() ? *this : copy();
  const Tensor result = empty(shape(), dtype(), device);
  detail::TensorImpl impl = detail::impl(result);
  impl.weak = is_weak();
  const auto bytes = static_cast<std::size_t>(nbytes());
  if (bytes > 0 && device.is_cuda())
    detail::upload(device, impl.first(), {detail::stored(from).first(), bytes});
  if (bytes > 0 && here.is_cuda())
    detail::download(here, detail::placed(from).first(), {impl.first(), bytes});
  return detail::make_tensor(std::move(impl));
}

const void* Tensor::raw_data(DType dtype, std::string_view where) const {
  require_dtype(dtype);
  return detail::stored(*this, where).first();
}

void* Tensor::raw_mutable_data(DType dtype) {
  require_dtype(dtype);
  expose("mutable_data");
  return detail::stored(*this).first();
}

const void* Tensor::raw_element(std::span<const std::int64_t> indices, std::byte* copy) const {
  const detail::TensorImpl& self =
      copy ? detail::placed(*this, "item") : detail::stored(*this, "at");
  const auto reached = [&](const std::byte* element) {
    if (!self.storage->device.is_cuda()) return element;
    detail::download(self.storage->device, element,
                     {copy, static_cast<std::size_t>(item_size(dtype()))});
    return static_cast<const std::byte*>(copy);
  };
  if (indices.empty() && size() == 1) return reached(self.first());
  if (static_cast<int>(indices.size()) != rank())
    fail("item", "got ", indices.size(), " indices for the shape ", shape(), ", need ", rank(),
         indices.empty() ? " (none is enough for a tensor of one element only)" : "");
  std::int64_t offset = 0;
  for (int axis = 0; axis < rank(); ++axis) {
    const std::int64_t index = indices[static_cast<std::size_t>(axis)], extent = shape()[axis];
    if (index < -extent || index >= extent)
      fail("item", "index ", index, " is out of bounds for axis ", axis, " of the shape ", shape());
    offset += (index < 0 ? index + extent : index) * self.strides[axis];
  }
  return reached(self.first() + offset * item_size(dtype()));
}

double Tensor::number_at(const void* element) const {
  return dispatch(dtype(), [&]<class Tag>(Tag) {
    return convert<double>(*static_cast<const typename Tag::type*>(element));
  });
}

std::int64_t Tensor::integer_at(const void* element) const {
  return dispatch(dtype(), [&]<class Tag>(Tag) {
    return convert<std::int64_t>(*static_cast<const typename Tag::type*>(element));
  });
}

bool Tensor::truth() const {
  if (!defined())
    fail("condition", "got an undefined tensor (default constructed): ask defined() for that");
  if (detail::impl(*this).recorder)
    fail("trace", "a condition asks for the value of a traced tensor (", type(),
         "), which exists only when the compiled function runs: choose with where()");
  if (size() != 1)
    fail("condition", "whether the shape ", shape(),
         " is true is ambiguous, need one element: use all() or any(), or compare whole tensors ",
         "with array_equal()");
  return item<bool>();
}

void Tensor::require_dtype(DType wanted) const {
  if (dtype() != wanted)
    fail("data", "this tensor holds ", dtype(), ", got a request for ", wanted,
         ": convert it with astype(", wanted, ")");
}

void Tensor::require_contiguous() const {
  if (!is_contiguous())
    fail("span", "the elements of the shape ", shape(), " with strides ", strides(),
         " are not in a row: use copy() first");
}

void Tensor::require_values(std::string_view where) const { detail::require_values(*this, where); }

void Tensor::expose(std::string_view where) {
  require_values(where);
  if (is_read_only())
    fail(where,
         detail::impl(*this).overlapping ? "several indices of this broadcast share one element"
                                         : "the memory of this tensor is read-only",
         ": write into a copy() instead, or read through item() or a const Tensor");
  detail::about_to_expose(*detail::impl(*this).storage);
}

}  // namespace tensor
