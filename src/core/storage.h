// Storage: a block of memory that tensors share, and TensorImpl: what a Tensor handle points to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "tensor/device.h"
#include "tensor/handle.h"

namespace tensor {
class Recorder;
}

namespace tensor::detail {

struct Origin;  // src/trace/derived.h
struct Storage;

/// How elements are made that nobody may ever look at.
class Late {
 public:
  explicit Late(std::function<std::shared_ptr<Storage>()> make) : make_(std::move(make)) {}
  /// The storage's elements are there afterwards. Any number of threads; throws what making them
  /// throws, and makes them anew for the next who asks.
  void make(Storage& storage);

 private:
  std::once_flag once_;
  std::function<std::shared_ptr<Storage>()> make_;
};

struct Storage {
  std::byte* bytes() {
    if (late) late->make(*this);
    return data;
  }

  std::byte* data = nullptr;          // of another device than the CPU: an address there
  std::shared_ptr<const void> owner;  // keeps `data` alive
  bool read_only = false;
  bool in_file = false;  // a mapping of a file, never written: its pages can be read again
  Device device = {};
  // Whether somebody may hold a pointer to write through, of which nobody is told.
  std::atomic<bool> is_exposed = false;
  std::atomic<std::uint64_t> written_at = 0;  // a moment of write_clock()
  std::atomic<int> watchers = 0;              // how many want to be told of writes
  // A derived constant has an origin, and where bytes() is to make it, what does so. Both are set
  // before others see the storage.
  std::shared_ptr<const Origin> origin;
  std::unique_ptr<Late> late;
};

/// Counts the writes into the storages of this process while a Watcher needs it.
std::uint64_t write_clock();

/// Who wants to be told of writes into the storages whose `watchers` it counts itself among.
class Watcher {
 public:
  explicit Watcher(bool needs_clock = false) : needs_clock_(needs_clock) {}
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  /// The elements are still as they were. A write is certain unless a pointer is handed out, which
  /// may be read alone. In the thread that writes, one call at a time; nothing is written if it
  /// throws.
  virtual void before_write(const Storage& storage, bool is_certain) = 0;

 protected:
  /// Once all of the object is there: other threads may call it from now on.
  void start_watching();
  /// A destructor calls this first of all: it returns when no other thread is in before_write.
  void stop_watching();
  ~Watcher() { stop_watching(); }

 private:
  bool needs_clock_;
};

/// Comes before every write into elements that a caller knows, from whatever thread.
void about_to_write(Storage& storage);
/// The same, before a pointer is handed out that writes will go through.
void about_to_expose(Storage& storage);

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

  std::byte* first() const { return storage->bytes() + offset * item_size(type.dtype); }
};

/// The impl of a defined tensor; throws UserError on an undefined one.
const TensorImpl& impl(const Tensor& x);
/// The same of a tensor with elements on whatever device; throws UserError on a traced one, naming
/// `where` as what asks for its values.
const TensorImpl& placed(const Tensor& x, std::string_view where = "trace");
/// The same of elements in memory of this process; throws UserError where they lie on a device.
const TensorImpl& stored(const Tensor& x, std::string_view where = "trace");
/// Throws UserError where x is traced; `mend` is what can be done instead.
void require_values(const Tensor& x, std::string_view where,
                    std::string_view mend =
                        "compute with operators, where(), cond() or loop(), or leave it "
                        "out of functions that are traced");

Tensor make_tensor(TensorImpl impl);

}  // namespace tensor::detail
