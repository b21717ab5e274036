// Pool: objects for one user at a time, kept for the next one.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tensor {

/// Any number of threads may take objects. There are as many as were ever in use at a time; taking
/// one that is free, and giving it back, allocates nothing.
template <class T>
class Pool {
 public:
  /// An object until the end of the lease's life, also when that is an exception.
  class Lease {
   public:
    Lease(Pool& pool, std::unique_ptr<T> object) : pool_(pool), object_(std::move(object)) {}
    ~Lease() { pool_.give_back(std::move(object_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    T& operator*() const { return *object_; }
    T* operator->() const { return object_.get(); }

   private:
    Pool& pool_;
    std::unique_ptr<T> object_;
  };

  /// `make` returns a unique_ptr<T>; it is called when none is free.
  template <class Make>
  Lease take(Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<T> object = std::move(free_.back());
        free_.pop_back();
        return Lease(*this, std::move(object));
      }
    }
    std::unique_ptr<T> object = make();
    const std::lock_guard lock(mutex_);
    free_.reserve(++made_);  // so that it can be given back
    return Lease(*this, std::move(object));
  }

 private:
  void give_back(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(object));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
  std::size_t made_ = 0;
};

}  // namespace tensor
