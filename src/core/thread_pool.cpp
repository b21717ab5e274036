#include "src/core/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <system_error>
#include <utility>

#include "src/core/cores.h"
#include "src/core/rounding.h"

namespace tensor::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// Many enough that a thread which comes late, or not at all, leaves little behind; few enough that
// dealing them out costs nothing.
constexpr std::int64_t kPiecesOfAThread = 16;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Looks again and again, for so long; whether it came true.
template <class Condition>
bool spin_until(const Condition& is_true, Clock::time_point end) {
  constexpr int kLooks = 32;  // between two looks at the clock
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (is_true()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return is_true();
}

}  // namespace

// Pieces [begin, end), as one number, so that those who take from either side agree.
struct alignas(64) Share {
  std::atomic<std::uint64_t> pieces{0};

  static constexpr int kHalf = 32;
  static std::int64_t begin_of(std::uint64_t pieces) {
    return static_cast<std::int64_t>(pieces >> kHalf);
  }
  static std::int64_t end_of(std::uint64_t pieces) {
    return static_cast<std::int64_t>(pieces & 0xffffffff);
  }

  void set(std::int64_t begin, std::int64_t end) {
    pieces.store(static_cast<std::uint64_t>(begin) << kHalf | static_cast<std::uint64_t>(end),
                 std::memory_order_relaxed);
  }
  std::int64_t left() const {
    const std::uint64_t now = pieces.load(std::memory_order_relaxed);
    return end_of(now) - begin_of(now);
  }
  /// -1 where there is none left.
  std::int64_t take(bool from_front) {
    std::uint64_t now = pieces.load(std::memory_order_relaxed);
    while (begin_of(now) < end_of(now)) {
      const std::uint64_t rest = from_front ? now + (std::uint64_t{1} << kHalf) : now - 1;
      if (pieces.compare_exchange_weak(now, rest, std::memory_order_relaxed))
        return from_front ? begin_of(now) : end_of(now) - 1;
    }
    return -1;
  }
};

// A loop that runs. Every thread that takes part has a share of neighbouring pieces, and helps
// others when that is done. It outlives the loop for as long as threads know of it that came late.
class Region {
 public:
  explicit Region(ThreadPool& owner) : pool(owner) {}

  void prepare(const Loop& of, int threads) {
    loop = of;
    shares = threads;
    reserve(threads);
    piece_ = std::max<std::int64_t>(1, loop.count / (threads * kPiecesOfAThread));
    const std::int64_t pieces = ceil_div(loop.count, piece_);
    for (int i = 0; i < threads; ++i)
      share(i).set(pieces * i / threads, pieces * (i + 1) / threads);
    left_.store(pieces, std::memory_order_relaxed);
    has_failed_.store(false, std::memory_order_relaxed);
    joined = references = 1;
  }

  void reserve(int threads) {
    if (room_ >= threads) return;
    shares_ = std::make_unique<Share[]>(static_cast<std::size_t>(threads));
    room_ = threads;
  }

  bool is_done() const { return left_.load(std::memory_order_acquire) == 0; }
  bool has_pieces() const {
    for (int i = 0; i < shares; ++i)
      if (share(i).left() > 0) return true;
    return false;
  }

  // Runs the pieces of a share, and then what others have not begun.
  void work(int own) {
    run_share(share(own), true, own);
    while (true) {
      int fullest = 0;
      for (int i = 1; i < shares; ++i)
        if (share(i).left() > share(fullest).left()) fullest = i;
      if (share(fullest).left() <= 0) return;
      run_piece(share(fullest).take(false), own);
    }
  }

  std::exception_ptr take_error() {
    return has_failed_.load(std::memory_order_relaxed) ? std::exchange(error_, nullptr) : nullptr;
  }

  ThreadPool& pool;
  Loop loop{};
  int shares = 0;
  std::condition_variable done;
  // Guarded by the pool's mutex: threads that took a share, and those that may still come here.
  int joined = 0, references = 0;

 private:
  Share& share(int i) const { return shares_[static_cast<std::size_t>(i)]; }

  void run_share(Share& from, bool from_front, int thread) {
    for (std::int64_t piece = 0; (piece = from.take(from_front)) >= 0;) run_piece(piece, thread);
  }

  void run_piece(std::int64_t piece, int thread) {
    if (piece < 0) return;
    const std::int64_t end = std::min((piece + 1) * piece_, loop.count);
    if (!has_failed_.load(std::memory_order_relaxed)) try {
        for (std::int64_t i = piece * piece_; i < end; ++i) loop.task(loop.body, i, thread);
      } catch (...) {
        if (!has_failed_.exchange(true)) error_ = std::current_exception();
      }
    left_.fetch_sub(1, std::memory_order_acq_rel);
  }

  std::unique_ptr<Share[]> shares_;
  int room_ = 0;
  std::int64_t piece_ = 1;             // tasks
  std::atomic<std::int64_t> left_{0};  // pieces that nobody has finished
  std::atomic<bool> has_failed_{false};
  std::exception_ptr error_;
};

ThreadPool::ThreadPool(int limit) : limit_(limit) {}

ThreadPool::~ThreadPool() {
  {
    const Lock held = lock();
    is_ending_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::set_limit(int limit) { limit_ = limit; }

void ThreadPool::set_executor(std::shared_ptr<Executor> executor) {
  const Lock held = lock();
  executor_.swap(executor);
}

// It is held for less time than it takes to sleep.
ThreadPool::Lock ThreadPool::lock() {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (Lock held(mutex_, std::try_to_lock); held) return held;
    pause();
  }
  return Lock(mutex_);
}

void ThreadPool::run(const Loop& loop) {
  const auto threads =
      static_cast<int>(std::min<std::int64_t>(std::min(loop.threads, limit_.load()), loop.count));
  if (threads < 2) {
    for (std::int64_t i = 0; i < loop.count; ++i) loop.task(loop.body, i, 0);
    return;
  }
  Region& region = open(loop, threads);
  region.work(0);
  close(region);
}

// How many threads may help one more caller now. Starts those of the pool that are missing: where
// the system gives no more, there are fewer.
int ThreadPool::helpers_for(int threads) {
  const int wanted = std::min(threads - 1, limit_ - callers_ - 1 - helping_);
  if (wanted <= 0) return 0;
  if (executor_) return std::min(wanted, executor_->threads());
  while (std::ssize(threads_) < threads - 1) try {
      // Signals are for the program's own threads.
      sigset_t all, before;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      try {
        threads_.emplace_back([this] { serve(); });
      } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
      }
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
    } catch (const std::system_error&) {
      break;
    }
  return wanted;
}

// One for one more caller. Each thread may still be at a region whose caller has gone: with as many
// more from the start, none is made while loops run, unless an executor is late.
void ThreadPool::make_regions(int threads) {
  const std::size_t wanted = threads_.size() + static_cast<std::size_t>(callers_) + 1;
  while (regions_.size() < wanted || free_.empty()) {
    regions_.push_back(std::make_unique<Region>(*this));
    for (auto* list : {&free_, &open_}) list->reserve(regions_.size());
    free_.push_back(regions_.back().get());
    room_ = 0;
  }
  if (room_ >= threads) return;
  room_ = threads;
  for (Region* region : free_) region->reserve(threads);
}

Region& ThreadPool::open(const Loop& loop, int threads) {
  std::shared_ptr<Executor> executor;
  int helpers = 0;
  Region* region = nullptr;
  {
    const Lock held = lock();
    helpers = helpers_for(threads);
    make_regions(threads);
    region = free_.back();
    region->prepare(loop, threads);
    free_.pop_back();
    open_.push_back(region);
    ++callers_;
    executor = executor_;
    if (executor)
      region->references += helpers;
    else
      helpers = std::min(helpers - spinning_, sleeping_);
  }
  opened_.fetch_add(1, std::memory_order_release);
  for (int i = 0; i < helpers; ++i)
    if (executor)
      executor->submit(
          [](void* late) {
            auto& of = *static_cast<Region*>(late);
            of.pool.help_late(of);
          },
          region);
    else
      work_.notify_one();
  return *region;
}

void ThreadPool::close(Region& region) {
  spin_until([&] { return region.is_done(); }, Clock::now() + region.loop.spin);
  std::exception_ptr error;
  bool has_others = false;
  {
    Lock held = lock();
    region.done.wait(held, [&] { return region.is_done(); });
    open_.erase(std::find(open_.begin(), open_.end(), &region));
    --callers_;
    error = region.take_error();
    leave(region);
    has_others = sleeping_ > 0 && joinable();  // which this caller's core may help now
  }
  if (has_others) work_.notify_one();
  if (error) std::rethrow_exception(error);
}

// The region that the fewest threads are at, if there is any to help with.
Region* ThreadPool::joinable() {
  if (callers_ + helping_ >= limit_) return nullptr;
  Region* best = nullptr;
  for (Region* region : open_)
    if (region->joined < region->shares && region->has_pieces() &&
        (!best || region->joined < best->joined))
      best = region;
  return best;
}

void ThreadPool::help(Region& region, Lock& held) {
  const int share = region.joined++;
  ++helping_;
  held.unlock();
  region.work(share);
  held = lock();
  --helping_;
}

// Whoever does not need the region any more.
void ThreadPool::leave(Region& region) {
  if (--region.references == 0)
    free_.push_back(&region);
  else if (region.is_done())
    region.done.notify_one();
}

void ThreadPool::serve() {
  pthread_setname_np(pthread_self(), "tensor");
  use_process_cores();  // whoever starts it may be bound to one
  Lock held = lock();
  std::chrono::microseconds spin{0};
  while (!is_ending_) {
    Region* const region = joinable();
    if (!region) {
      if (!await_work(spin, held)) spin = {};
      continue;
    }
    ++region->references;
    spin = region->loop.spin;
    help(*region, held);
    leave(*region);
  }
}

// false: has slept.
bool ThreadPool::await_work(std::chrono::microseconds spin, Lock& held) {
  if (spin.count() > 0) {
    ++spinning_;
    const std::uint32_t seen = opened_.load(std::memory_order_acquire);
    held.unlock();
    const bool has_come = spin_until(
        [&] { return opened_.load(std::memory_order_acquire) != seen; }, Clock::now() + spin);
    held = lock();
    --spinning_;
    if (has_come) return true;
  }
  ++sleeping_;
  work_.wait(held, [&] { return is_ending_ || joinable(); });
  --sleeping_;
  return false;
}

// A job of the executor, whose region may be over.
void ThreadPool::help_late(Region& region) {
  Lock held = lock();
  if (region.joined < region.shares && callers_ + helping_ < limit_ && region.has_pieces())
    help(region, held);
  leave(region);
}

}  // namespace tensor::cpu
