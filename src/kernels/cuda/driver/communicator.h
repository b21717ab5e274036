// Communicator: sums over several GPUs by NCCL, which is opened at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/kernels/cuda/driver/device.h"
#include "tensor/dtype.h"

namespace tensor::cuda {

struct CommunicatorHandle;

/// GPUs that add up what each has of a value. There is one for each list of them, which lives as
/// long as the process, as they do: graphs that were recorded with it must not outlive it.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  /// Made when it is first asked for, and anew where abort() ended the last one. UserError where
  /// NCCL cannot be opened, or does not connect these GPUs.
  static std::shared_ptr<Communicator> of(const std::vector<Device*>& devices);

  /// Sums wait for each other on the GPUs. Two calls that get there in different order would do so
  /// for ever: as long as this lives, no other has a turn on any of the GPUs.
  using Turn = std::vector<std::unique_lock<std::mutex>>;
  Turn take_turn() const;

  /// Puts into a stream of the GPU of this rank: at `to`, the sum of the elements (f32 or f64) at
  /// `from` of all ranks. The same of all of them, in the same order; each has a thread.
  void all_reduce(std::size_t rank, Stream& stream, Address from, Address to, std::int64_t elements,
                  DType dtype);
  /// Ends the waiting of all for one that does not come. Any thread may call it, and any number.
  void abort(const std::string& cause);
  /// UserError once somebody did.
  void check() const;

 private:
  struct Rank {
    Device* device;
    CommunicatorHandle* handle = nullptr;
    std::timed_mutex mutex = {};  // of calls with the handle
  };
  explicit Communicator(const std::vector<Device*>& devices);

  const std::vector<Device*> devices_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  mutable std::mutex mutex_;
  std::string cause_;  // why it was aborted; empty: it was not
};

}  // namespace tensor::cuda
