#include "src/runtime/crew.h"

#include <unistd.h>

#include <utility>

namespace tensor::detail {

void Crew::Member::start(const Work& work, std::size_t piece) {
  {
    const std::lock_guard lock(mutex_);
    work_ = &work, piece_ = piece;
  }
  changed_.notify_all();
}

std::exception_ptr Crew::Member::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !work_; });
  return std::exchange(error_, nullptr);
}

void Crew::Member::serve(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return work_ != nullptr; })) {
    std::exception_ptr error;
    lock.unlock();
    try {
      (*work_)(piece_);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    work_ = nullptr, error_ = std::move(error);
    changed_.notify_all();
  }
}

void Crew::forget_those_of_parent() {
  if (members_ && process_ != ::getpid()) static_cast<void>(members_.release());
}

void Crew::run(std::size_t count, const Work& work) {
  forget_those_of_parent();
  if (!members_) members_ = std::make_unique<Members>(), process_ = ::getpid();
  Members& members = *members_;
  while (members.size() + 1 < count) members.emplace_back();
  for (std::size_t i = 1; i < count; ++i) members[i - 1].start(work, i);
  std::exception_ptr first;
  try {
    work(0);
  } catch (...) {
    first = std::current_exception();
  }
  for (std::size_t i = 1; i < count; ++i)
    if (std::exception_ptr error = members[i - 1].wait(); error && !first) first = error;
  if (first) std::rethrow_exception(first);
}

}  // namespace tensor::detail
