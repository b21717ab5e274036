// LaunchGraph: a sequence of launches and copies that starts as one, and the page-locked memory
// that copies to and from the host go through.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "src/kernels/cuda/driver/device.h"

namespace tensor::cuda {

/// Host memory that the device reaches directly.
class PinnedBuffer {
 public:
  /// UserError with the size when it cannot be had.
  PinnedBuffer(Device& device, std::int64_t bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  Device* device_;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// What `record` puts into the stream (launches, copies, host functions), recorded once and started
/// any number of times. One start at a time.
class LaunchGraph {
 public:
  LaunchGraph(Device& device, const std::function<void(Stream&)>& record);
  LaunchGraph(const LaunchGraph&) = delete;
  LaunchGraph& operator=(const LaunchGraph&) = delete;
  ~LaunchGraph();

  void start(Stream& stream) const;

 private:
  Device* device_;
  GraphExecHandle* handle_ = nullptr;
  Launched launched_;
};

/// Records parts of a LaunchGraph that run only where a condition holds.
class Conditions {
 public:
  /// Whether the driver can: since CUDA 12.3.
  static bool are_known();
  /// The text of the kernel that hands a condition to the graph.
  static KernelSource source();
  explicit Conditions(Device& device);

  /// What `record` puts into the stream that it gets, kernels and further conditions, runs where
  /// the bool at `condition` is `value`. `stream` is one that is recorded.
  void record(Stream& stream, Address condition, bool value,
              const std::function<void(Stream&)>& record) const;

 private:
  std::shared_ptr<Kernel> set_;  // hands the bool to the graph
};

/// Copies and calls in the order of a stream. Host memory is page-locked and outlives the stream's
/// work.
void upload(Stream& stream, Address to, const std::byte* from, std::int64_t bytes);
void download(Stream& stream, std::byte* to, Address from, std::int64_t bytes);
void copy(Stream& stream, Address to, Address from, std::int64_t bytes);  // on the device
void call_on_host(Stream& stream, void (*function)(void*), void* argument);

}  // namespace tensor::cuda
