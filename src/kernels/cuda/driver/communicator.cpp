#include "src/kernels/cuda/driver/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

#include "src/kernels/cuda/driver/nccl.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

// "cuda:0 and cuda:1".
std::string names_of(const std::vector<Device*>& devices) {
  std::string names;
  for (std::size_t i = 0; i < devices.size(); ++i)
    names += (i == 0                    ? "cuda:"
              : i + 1 == devices.size() ? " and cuda:"
                                        : ", cuda:") +
             std::to_string(devices[i]->info().index);
  return names;
}

std::string nccl_error(int result) { return Nccl::get().error_text(result); }

// A call with a handle takes microseconds, unless it waits for other ranks: then abort() ends it.
constexpr std::chrono::seconds kLongCall{1};

}  // namespace

const Nccl& Nccl::get() {
  static const Nccl nccl = [] {
    const char* const file = std::getenv("TENSOR_NCCL");
    return Nccl{
        SharedLibrary("NCCL",
                      file ? std::vector<std::string>{file}
                           : std::vector<std::string>{"libnccl.so.2", "libnccl.so"},
                      "install it (NVIDIA's packages libnccl2, or nvidia-nccl-cu12 from "
                      "PyPI), or name the file in TENSOR_NCCL; one device works without it, "
                      "and so do several that divide a batch")};
  }();
  return nccl;
}

std::shared_ptr<Communicator> Communicator::of(const std::vector<Device*>& devices) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::vector<Device*>, std::shared_ptr<Communicator>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Communicator>& mine = known[devices];
  const bool is_usable = mine && [&] {
    const std::lock_guard its_lock(mine->mutex_);
    return mine->cause_.empty();
  }();
  if (!is_usable) mine = std::shared_ptr<Communicator>(new Communicator(devices));
  return mine;
}

Communicator::Communicator(const std::vector<Device*>& devices) : devices_(devices) {
  std::vector<int> indices;
  for (Device* device : devices) {
    device->enter();
    indices.push_back(device->info().index);
  }
  std::vector<CommunicatorHandle*> handles(devices.size());
  const int result =
      Nccl::get().connect(handles.data(), static_cast<int>(devices.size()), indices.data());
  if (result != 0)
    fail("NCCL", "does not connect ", names_of(devices), ": ", nccl_error(result),
         "; set NCCL_DEBUG=INFO to learn why");
  for (std::size_t i = 0; i < devices.size(); ++i) {
    ranks_.push_back(std::make_unique<Rank>(devices[i]));
    ranks_.back()->handle = handles[i];
  }
}

Communicator::Turn Communicator::take_turn() const {
  static std::mutex mutex;
  static auto& turns = *new std::map<const Device*, std::mutex>;
  std::vector<Device*> in_order = devices_;
  std::sort(in_order.begin(), in_order.end(),
            [](const Device* a, const Device* b) { return a->info().index < b->info().index; });
  std::vector<std::mutex*> all;
  {
    const std::lock_guard lock(mutex);
    for (const Device* device : in_order) all.push_back(&turns[device]);
  }
  Turn turn;
  for (std::mutex* one : all) turn.emplace_back(*one);
  return turn;
}

void Communicator::all_reduce(std::size_t rank, Stream& stream, Address from, Address to,
                              std::int64_t elements, DType dtype) {
  Rank& mine = *ranks_[rank];
  mine.device->enter();
  std::unique_lock lock(mine.mutex);
  check();
  const int result = Nccl::get().all_reduce(
      reinterpret_cast<const void*>(from), reinterpret_cast<void*>(to),
      static_cast<std::size_t>(elements), dtype == f64 ? kNcclFloat64 : kNcclFloat32, kNcclSum,
      mine.handle, stream.handle());
  lock.unlock();
  if (result != 0)
    internal_error("cuda:" + std::to_string(mine.device->info().index),
                   "adding up products: ", nccl_error(result));
  if (mine.device->waits_for_kernels() && !stream.is_recorded()) stream.synchronize();
}

// What waits is told at once. What was recorded is let go of later, and NCCL waits for that, too:
// so do threads that nobody waits for.
void Communicator::abort(const std::string& cause) {
  {
    const std::lock_guard lock(mutex_);
    if (!cause_.empty()) return;
    cause_ = cause;
  }
  for (const std::unique_ptr<Rank>& rank : ranks_)
    std::thread([keep = shared_from_this(), mine = rank.get()] {
      const std::unique_lock lock(mine->mutex, kLongCall);
      if (mine->device->make_current()) Nccl::get().abort(mine->handle);
    }).detach();
}

void Communicator::check() const {
  const std::lock_guard lock(mutex_);
  if (!cause_.empty())
    fail("run", names_of(devices_), " no longer add up products since a call ended with \"", cause_,
         "\": compile the function again");
}

}  // namespace tensor::cuda
