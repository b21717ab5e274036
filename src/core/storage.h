// Storage: a block of memory that tensors share, and TensorImpl: what a Tensor handle points to.
#pragma once

#include <cstddef>
#include <memory>

#include "tensor/device.h"
#include "tensor/handle.h"

namespace tensor {
class Recorder;
}

namespace tensor::detail {

struct Storage {
  std::byte* data = nullptr;          // of another device than the CPU: an address there
  std::shared_ptr<const void> owner;  // keeps `data` alive
  bool read_only = false;
  bool in_file = false;  // a mapping of a file, never written: its pages can be read again
  Device device = {};
};

/// Elements are 64-byte aligned and uninitialised. Throws UserError when the memory cannot be had.
std::shared_ptr<Storage> allocate(std::int64_t bytes);

struct TensorImpl {
  TensorType type;
  Strides strides;          // in elements
  std::int64_t offset = 0;  // of the first element, in elements
  std::shared_ptr<Storage> storage;
  bool weak = false;         // from a C++ number: does not promote
  bool overlapping = false;  // a broadcast: several indices share one element

  std::shared_ptr<Recorder>
      recorder;  // a traced tensor: no storage, but a value in the recorder's graph
  std::int32_t value = -1;

  std::byte* first() const { return storage->data + offset * item_size(type.dtype); }
};

/// The impl of a defined tensor; throws UserError on an undefined one.
const TensorImpl& impl(const Tensor& x);
/// The same of a tensor with elements on whatever device; throws UserError on a traced one.
const TensorImpl& placed(const Tensor& x);
/// The same of elements in memory of this process; throws UserError where they lie on a device.
const TensorImpl& stored(const Tensor& x);

Tensor make_tensor(TensorImpl impl);

}  // namespace tensor::detail
