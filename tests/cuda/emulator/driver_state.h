// What the parts of the emulated driver share: the driver's objects, and what they do for each
// other.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/kernels/cuda/driver/driver.h"
#include "src/kernels/cuda/family.h"
#include "tests/cuda/emulator/driver.h"
#include "tests/cuda/emulator/engine.h"

namespace tensor::cuda {

// The driver's objects, which the library only knows as pointers.
struct Context {
  struct Block {
    std::size_t bytes = 0;
    bool is_uploaded = false;  // last written by a copy, so that no kernel need be waited for
  };
  DeviceInfo info;
  std::byte *begin = nullptr, *next = nullptr, *end = nullptr;  // of the addresses
  std::int64_t limit = 0, taken = 0;
  int lost = 0;  // the error that ended its use
  std::map<Address, Block> blocks;
  std::deque<std::function<void()>> copies;  // queued on the default stream

  Block* holding(Address address, std::size_t bytes) {
    auto after = blocks.upper_bound(address);
    if (after == blocks.begin()) return nullptr;
    auto& [first, block] = *--after;
    return address + bytes <= first + block.bytes ? &block : nullptr;
  }
};
struct GraphHandle {
  std::vector<std::function<void()>> work;
};
struct GraphExecHandle : GraphHandle {};
struct StreamHandle {
  Context* device = nullptr;
  std::deque<std::function<void()>> work;
  GraphHandle* capture = nullptr;  // what is being recorded
};
struct EventHandle {
  bool is_reached = false;
  StreamHandle* stream = nullptr;  // in which it was recorded
};
struct FunctionHandle {
  const KernelSource* source = nullptr;
  std::string entry;
  int capability = 0;
  bool asks_shared = false;  // for dynamic shared memory; without, both kinds have 48 KiB
};
struct ModuleHandle {
  KernelSource source;
  int capability = 0;
  std::deque<FunctionHandle> functions;
};

}  // namespace tensor::cuda

namespace tensor::emulator {

using cuda::Address;

// What calls return; 0: all is well.
constexpr int kInvalid = 1, kInvalidImage = 200, kNoContext = 201, kNoBinary = 209, kNotFound = 500,
              kIllegalAddress = 700, kFailed = 719;
constexpr std::size_t kPage = 4096;

struct State {
  std::recursive_mutex mutex;
  std::atomic<pid_t> process = 0;  // that called init first
  std::deque<cuda::Context> devices;
  std::map<const std::byte*, std::size_t> pinned;
  std::deque<cuda::StreamHandle*> streams;
  std::deque<MapOnHost> maps;  // live as long as the process: kernels name them
  // Of conditional nodes, live as long as the process: graphs name them.
  std::deque<unsigned> conditions;
  std::deque<cuda::GraphHandle> bodies;
  std::deque<cuda::GraphHandle*> body_of_nodes;
  DriverCounts counts;
  std::string complaints, fault;
  int kernels_until_failure = -1, failure = 0;
  bool skips_kernels = false, nccl_connects = true;
  std::condition_variable_any summed;  // a rank has come to a sum, or was aborted
  std::vector<std::string> ranges;
};
State& state();
inline thread_local cuda::Context* current = nullptr;

/// Why the current device cannot be used, 0 if it can.
inline int trouble() { return current ? current->lost : kNoContext; }

/// A kernel that fails because a test wants it to.
struct Failure {
  int error;
};

inline void complain(const std::string& what) { state().complaints += what + "\n"; }

// Device memory may be touched as long as this lives.
class Unprotected {
 public:
  explicit Unprotected(cuda::Context& device) : device_(device) { set(PROT_READ | PROT_WRITE); }
  ~Unprotected() { set(PROT_NONE); }
  Unprotected(const Unprotected&) = delete;
  Unprotected& operator=(const Unprotected&) = delete;

 private:
  void set(int access) {
    if (device_.next > device_.begin)
      mprotect(device_.begin, static_cast<std::size_t>(device_.next - device_.begin), access);
  }
  cuda::Context& device_;
};

// driver_memory.cpp
int copy_in(Address to, const void* from, std::size_t bytes);
int copy_out(void* to, Address from, std::size_t bytes);
void finish_copies(cuda::Context& device);  // those of the default stream
void check_pinned(const void* memory, std::size_t bytes);
// driver_streams.cpp: later, in the order of the stream.
int enqueue(cuda::StreamHandle* stream, std::function<void()> work);

// What each part has of libcuda, by name.
using Functions = std::map<std::string, void*>;
Functions memory_functions();
Functions stream_functions();
Functions kernel_functions();
/// What there is of NCCL.
Functions nccl_functions();

template <class F>
void* pointer_to(F* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace tensor::emulator
