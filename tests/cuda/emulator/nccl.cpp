// NCCL of the emulated driver: the ranks of a communicator meet when their streams come to a sum. A
// stream runs in the thread that waits for it, so each rank needs one.
#include <algorithm>
#include <cstring>

#include "src/kernels/cuda/driver/nccl.h"
#include "tests/cuda/emulator/driver_state.h"

namespace tensor::cuda {

// What the ranks that came to a sum bring, until all are there.
struct Meeting {
  std::vector<std::vector<std::byte>> summands;
  std::size_t arrived = 0;
};
struct Ranks {
  std::size_t count = 0;
  std::deque<Meeting> meetings;  // by number
};
struct CommunicatorHandle {
  std::shared_ptr<Ranks> ranks;
  Context* device = nullptr;
  std::size_t rank = 0, next = 0;  // the number of its next sum
  bool is_aborted = false;
};

}  // namespace tensor::cuda

namespace tensor::emulator {
namespace {

using cuda::CommunicatorHandle;
constexpr int kUnhandled = 1, kInvalidArgument = 4;

int connect(CommunicatorHandle** handles, int count, const int* devices) {
  const std::lock_guard lock(state().mutex);
  if (!state().nccl_connects) return kUnhandled;
  static auto& all = *new std::deque<CommunicatorHandle>;  // live as long as the process
  const auto ranks = std::make_shared<cuda::Ranks>();
  ranks->count = static_cast<std::size_t>(count);
  for (int i = 0; i < count; ++i)
    handles[i] = &all.emplace_back(
        CommunicatorHandle{ranks, &state().devices[static_cast<std::size_t>(devices[i])],
                           static_cast<std::size_t>(i)});
  return 0;
}

// The state's mutex, held once, is let go for others to come while this one waits.
class WhileOthersRun {
 public:
  void lock() { state().mutex.lock(); }
  void unlock() { state().mutex.unlock(); }
};

template <class T>
void add(std::vector<std::byte>& to, const std::vector<std::byte>& from) {
  auto* const sum = reinterpret_cast<T*>(to.data());
  const auto* const more = reinterpret_cast<const T*>(from.data());
  for (std::size_t i = 0; i < to.size() / sizeof(T); ++i) sum[i] += more[i];
}

// What a rank does when its stream comes to the sum.
void meet(CommunicatorHandle* mine, Address from, Address to, std::size_t count, int type) {
  const std::size_t bytes = count * (type == cuda::kNcclFloat64 ? sizeof(double) : sizeof(float));
  const std::shared_ptr<cuda::Ranks> ranks = mine->ranks;
  const std::size_t number = mine->next++;
  if (ranks->meetings.size() <= number) ranks->meetings.resize(number + 1);
  cuda::Meeting& here = ranks->meetings[number];  // a deque's elements stay where they are
  here.summands.resize(ranks->count);
  here.summands[mine->rank].resize(bytes);
  if (copy_out(here.summands[mine->rank].data(), from, bytes) != 0)
    throw Fault("NCCL reads outside of the memory in use");
  ++here.arrived;
  state().summed.notify_all();
  WhileOthersRun waiting;
  state().summed.wait(waiting, [&] { return here.arrived >= ranks->count || mine->is_aborted; });
  if (mine->is_aborted) return;  // with nothing written
  // Each rank adds up for itself, in one order.
  std::vector<std::byte> sum = here.summands[0];
  for (std::size_t i = 1; i < ranks->count; ++i) {
    if (here.summands[i].size() != bytes) throw Fault("NCCL adds sums of other ranks");
    type == cuda::kNcclFloat64 ? add<double>(sum, here.summands[i])
                               : add<float>(sum, here.summands[i]);
  }
  if (copy_in(to, sum.data(), bytes) != 0) throw Fault("NCCL writes outside of the memory in use");
  if (mine->rank == 0) ++state().counts.sums;
}

int all_reduce(const void* from, void* to, std::size_t count, int type, int operation,
               CommunicatorHandle* mine, cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  if (operation != cuda::kNcclSum || mine->is_aborted || stream->device != mine->device)
    return kInvalidArgument;
  return enqueue(stream,
                 [=] {
                   meet(mine, reinterpret_cast<Address>(from), reinterpret_cast<Address>(to), count,
                        type);
                 }) == 0
             ? 0
             : kUnhandled;
}

int abort(CommunicatorHandle* mine) {
  const std::lock_guard lock(state().mutex);
  mine->is_aborted = true;
  state().summed.notify_all();
  return 0;
}

const char* error_text(int result) {
  return result == kInvalidArgument ? "invalid argument" : "unhandled cuda error";
}

}  // namespace

Functions nccl_functions() {
  return {
      {"ncclCommInitAll", pointer_to(connect)},
      {"ncclAllReduce", pointer_to(all_reduce)},
      {"ncclCommAbort", pointer_to(abort)},
      {"ncclGetErrorString", pointer_to(error_text)},
  };
}

void let_nccl_connect(bool is_let) {
  const std::lock_guard lock(state().mutex);
  state().nccl_connects = is_let;
}

}  // namespace tensor::emulator
