// The Tensor handle: access to its impl with the checks that the header promises.
#include "tensor/handle.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <ostream>

#include "src/core/device_memory.h"
#include "src/core/dispatch.h"
#include "src/core/storage.h"
#include "src/core/view.h"
#include "tensor/creation.h"
#include "tensor/index.h"
#include "tensor/io.h"
#include "tensor/ops.h"

namespace tensor {
namespace detail {

// Memory of at least a huge page is aligned to such, and asks for them: rows that lie far apart
// would need an entry of the address cache each, and the prefetcher stops at the end of a page.
std::shared_ptr<Storage> allocate(std::int64_t bytes) {
  constexpr std::size_t kAlignment = 64, kHugePage = 2 << 20;
  const std::size_t rounded =
      (static_cast<std::size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
  const bool is_large = rounded >= kHugePage;
  // Not aligned_alloc, which need not take sizes that are no multiple of the alignment.
  void* memory = nullptr;
  if (posix_memalign(&memory, is_large ? kHugePage : kAlignment,
                     rounded == 0 ? kAlignment : rounded))
    fail("memory", "cannot allocate ", bytes,
         " bytes for a tensor: the machine has not that much free");
  // Whole ones only: what follows may be another block's. Without them all works as well.
  if (is_large) madvise(memory, rounded / kHugePage * kHugePage, MADV_HUGEPAGE);
  auto storage = std::make_shared<Storage>();
  storage->owner =
      std::shared_ptr<const void>(memory, [](const void* p) { std::free(const_cast<void*>(p)); });
  storage->data = static_cast<std::byte*>(memory);
  return storage;
}

const TensorImpl& impl(const Tensor& x) {
  if (!x.defined())
    fail("tensor", "this tensor is undefined (default constructed): give it a value first");
  return *x.impl();
}

const TensorImpl& placed(const Tensor& x) {
  const TensorImpl& result = impl(x);
  if (result.recorder)
    fail("trace", "the values of a traced tensor (", result.type,
         ") are asked for, but exist only when the compiled "
         "function runs: keep item(), data(), printing and boolean masks out of functions that are "
         "traced");
  return result;
}

const TensorImpl& stored(const Tensor& x) {
  const TensorImpl& result = placed(x);
  if (const Device& device = result.storage->device; device.is_cuda())
    fail("tensor", "the elements of this tensor (", result.type, ") lie on ", device,
         ", where they cannot be reached from here: bring them with to(\"cpu\")");
  return result;
}

Tensor make_tensor(TensorImpl impl) {
  return Tensor(std::make_shared<TensorImpl>(std::move(impl)));
}

Tensor apart(const Tensor& result, const Tensor& x) {
  return impl(result).recorder || !result.shares_storage(x) ? result : copy(result);
}

}  // namespace detail

void forget_pages(const Tensor& x) {
  const detail::TensorImpl& t = detail::placed(x);
  if (!t.storage->in_file || x.size() == 0) return;
  std::int64_t reach = 1;  // elements from the first to the last
  for (int axis = 0; axis < t.type.shape.rank(); ++axis) {
    if (t.strides[axis] < 0) return;
    reach += t.strides[axis] * (t.type.shape[axis] - 1);
  }
  // Whole pages only: the first and the last may hold a neighbour's elements too.
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(t.first()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(t.first()) +
                    static_cast<std::uintptr_t>(reach * item_size(t.type.dtype))) /
                   page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

namespace {

template <class T>
Tensor weak_scalar(T value) {
  Tensor result = empty({}, dtype_of<T>());
  *result.mutable_data<T>() = value;
  detail::TensorImpl impl = detail::impl(result);
  impl.weak = true;
  return detail::make_tensor(std::move(impl));
}

bool row_major_contiguous(const Shape& shape, const Strides& strides) {
  std::int64_t expected = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] == 0) return true;
    if (shape[axis] != 1 && strides[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
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
bool Tensor::is_contiguous() const { return row_major_contiguous(shape(), strides()); }
bool Tensor::is_weak() const { return detail::impl(*this).weak; }
bool Tensor::is_read_only() const {
  const detail::TensorImpl& self = detail::placed(*this);
  return self.storage->read_only || self.overlapping;
}
bool Tensor::shares_storage(const Tensor& other) const {
  return detail::placed(*this).storage->owner == detail::placed(other).storage->owner;
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

const void* Tensor::raw_data(DType dtype) const {
  require_dtype(dtype);
  return detail::stored(*this).first();
}

void* Tensor::raw_mutable_data(DType dtype) {
  require_dtype(dtype);
  require_writable("mutable_data");
  return detail::stored(*this).first();
}

const void* Tensor::raw_element(std::span<const std::int64_t> indices, std::byte* copy) const {
  const detail::TensorImpl& self = copy ? detail::placed(*this) : detail::stored(*this);
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

void Tensor::require_writable(std::string_view where) const {
  if (is_read_only())
    fail(where,
         detail::impl(*this).overlapping ? "several indices of this broadcast share one element"
                                         : "the memory of this tensor is read-only",
         ": write into a copy() instead, or read through item() or a const Tensor");
}

IndexedTensor Tensor::operator[](const char* index) const {
  return IndexedTensor(*this, parse_index(index));
}

Tensor Tensor::reshape(const Shape& shape) const { return tensor::reshape(*this, shape); }
Tensor Tensor::transpose() const { return tensor::transpose(*this); }
Tensor Tensor::transpose(const Dims& axes) const { return tensor::transpose(*this, axes); }
Tensor Tensor::swapaxes(int a, int b) const { return tensor::swapaxes(*this, a, b); }
Tensor Tensor::expand_dims(int axis) const { return tensor::expand_dims(*this, axis); }
Tensor Tensor::squeeze() const { return tensor::squeeze(*this); }
Tensor Tensor::flatten() const { return detail::apart(tensor::reshape(*this, {-1}), *this); }
Tensor Tensor::astype(DType dtype) const { return tensor::astype(*this, dtype); }
Tensor Tensor::copy() const { return tensor::copy(*this); }

// ---- Views for kernels.

ConstView const_view(const Tensor& x) {
  const detail::TensorImpl& impl = detail::stored(x);
  return {impl.first(), impl.type.dtype, impl.type.shape, impl.strides};
}

View mutable_view(const Tensor& x) {
  const detail::TensorImpl& impl = detail::stored(x);
  return {impl.first(), impl.type.dtype, impl.type.shape, impl.strides};
}

template <class Byte>
bool BasicView<Byte>::is_contiguous() const {
  return row_major_contiguous(shape, strides);
}
template struct BasicView<std::byte>;
template struct BasicView<const std::byte>;

Strides broadcast_strides(const Shape& from, const Strides& strides, const Shape& shape) {
  Strides result = Strides::filled(shape.rank(), 0);
  const int lead = shape.rank() - from.rank();
  for (int axis = 0; axis < from.rank(); ++axis)
    if (from[axis] != 1 || shape[axis + lead] == 1) result[axis + lead] = strides[axis];
  return result;
}

Dims memory_order(const Strides& strides) {
  Dims order;
  for (int axis = 0; axis < strides.rank(); ++axis) order.push_back(axis);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return std::abs(strides[static_cast<int>(a)]) > std::abs(strides[static_cast<int>(b)]);
  });
  return order;
}

}  // namespace tensor
