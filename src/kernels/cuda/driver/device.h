// Device: one GPU through the CUDA driver, which is opened at run time. Memory, streams, events and
// kernels belong to a device and must not outlive the process's use of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/kernels/cuda/driver/compiler.h"
#include "src/kernels/cuda/driver/driver.h"
#include "src/kernels/cuda/kernel_source.h"
#include "src/kernels/cuda/machine.h"

namespace tensor::cuda {

class Device {
 public:
  /// How many GPUs the driver shows. UserError when there is no driver, naming what was tried, or
  /// no GPU.
  static int count();
  /// UserError also when there are not so many.
  static Device& get(int index = 0);
  /// Whether this process has called the driver: its children cannot, then, but for start_anew.
  static bool is_started();
  /// A child of a process that may have called the driver calls this before all else: what calls
  /// the driver from now on gets a copy of it, which begins afresh. What the parent had on its
  /// devices is out of reach here.
  static void start_anew();

  const DeviceInfo& info() const { return info_; }
  std::int64_t free_bytes() const;

  /// Maps a result of the driver to an exception: out of memory and faults of the caller to
  /// UserError, others to InternalError. After an error that the driver cannot recover from (an
  /// illegal address, say) every later call reports that first one, with `what` it happened in.
  void check(int result, const std::string& what);
  /// Whether every kernel is waited for, so that its errors are known to be its own: TENSOR_SYNC=1
  /// when the device was opened.
  bool waits_for_kernels() const { return waits_for_kernels_; }
  /// Throws that first error, if there was one, and makes this device current for the thread.
  void enter();
  /// The second without the first, for destructors. False where nothing is to be given back: to the
  /// driver of a parent process.
  bool make_current() noexcept;
  Context* context() const { return context_; }

 private:
  explicit Device(int index);
  const struct Session& session_;
  DeviceInfo info_;
  bool waits_for_kernels_ = false;
  Context* context_ = nullptr;
  std::shared_ptr<struct Death> death_;
};

/// A block of device memory.
class Buffer {
 public:
  /// UserError with the sizes when the device has not so much left; nothing else is lost then.
  Buffer(Device& device, std::int64_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  Address address() const { return address_; }
  std::int64_t bytes() const { return bytes_; }
  /// Copies that are done when they return.
  void upload(std::span<const std::byte> from, std::int64_t offset = 0);
  void download(std::span<std::byte> to, std::int64_t offset = 0) const;
  /// Sets every byte.
  void fill(unsigned char byte);
  /// What lies at `offset`, to all these other places.
  void repeat(std::int64_t offset, std::size_t bytes, std::span<const std::int64_t> places);

 private:
  void check_range(std::int64_t offset, std::size_t bytes) const;
  void wait_for_copies();
  Device* device_;
  Address address_ = 0;
  std::int64_t bytes_ = 0;
};

/// The kernels that a stream was given and nobody has waited for yet: an error may be of any.
class Launched {
 public:
  /// What the next kernels are to their caller: "encoder.layer.3: matmul, add".
  void describe(const std::string& place) { place_ = place; }
  void add(const std::string& kernel);
  void add(const Launched& graph);
  void clear() { count_ = 0; }
  bool is_empty() const { return count_ == 0; }
  /// "running gemm (encoder.layer.3: matmul, add)"; of different ones, which come first and last.
  std::string text() const;

 private:
  std::string place_, first_, last_;
  std::size_t count_ = 0;
  bool differ_ = false;
};

/// Work in order. Streams run beside each other.
class Stream {
 public:
  /// What is recorded cannot be waited for.
  explicit Stream(Device& device, bool is_recorded = false);
  /// Somebody else's, which stays theirs.
  Stream(Device& device, StreamHandle* foreign);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();
  /// Waits until all of it is done; errors of its kernels appear here.
  void synchronize();
  /// As Device::check, but an error that the driver cannot recover from is one of a kernel in the
  /// stream, and not of `what` is being called.
  void check(int result, const std::string& what);

  bool is_recorded() const { return is_recorded_; }
  Launched& launched() { return launched_; }
  Device& device() const { return *device_; }
  StreamHandle* handle() const { return handle_; }

 private:
  Device* device_;
  bool is_recorded_ = false, is_mine_ = true;
  StreamHandle* handle_ = nullptr;
  Launched launched_;
};

/// A moment in a stream.
class Event {
 public:
  explicit Event(Device& device);
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();
  void record(Stream& stream);
  /// Whether it is reached, and waiting until it is; errors of kernels before it appear here.
  bool is_reached() const;
  void wait() const;
  /// From `earlier` to this one, both recorded and reached.
  double microseconds_since(const Event& earlier) const;

 private:
  Device* device_;
  EventHandle* handle_ = nullptr;
};

/// A function of a cubin, loaded.
class Kernel {
 public:
  /// With `renewed`, that is loaded instead where the driver refuses the cubin.
  Kernel(Device& device, const Cubin& cubin, const std::string& name,
         const std::function<Cubin()>& renewed = {});
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel();

  int registers() const;    // a thread
  int local_bytes() const;  // a thread: more than 0 where registers spill

  template <class... Arguments>
  void operator()(Stream& stream, const Launch& launch, Arguments... arguments) {
    void* addresses[] = {static_cast<void*>(&arguments)..., nullptr};
    run(stream, launch, addresses);
  }
  /// The same with the addresses of the arguments. Any number of threads may call either.
  void run(Stream& stream, const Launch& launch, void** arguments);

 private:
  int load(const Cubin& cubin);
  int attribute(FunctionAttribute which) const;
  void ask_for_shared(unsigned bytes);
  Device* device_;
  std::string name_;
  ModuleHandle* module_ = nullptr;
  FunctionHandle* function_ = nullptr;
  std::mutex mutex_;
  unsigned most_shared_ = 0;  // of dynamic shared memory, as asked for so far; never less again
};

}  // namespace tensor::cuda
