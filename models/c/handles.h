// Handles: what the C interface gives out in place of objects. A handle is a number, never an
// address, so that any other number in its place is known to be none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "tensor/error.h"
#include "tensor_c.h"

namespace models::c {

/// What a caller passed is no handle of this kind.
class BadHandle : public tensor::UserError {
 public:
  using UserError::UserError;
};

/// The last bits of a handle.
enum class Kind : std::uintptr_t { options = 1, model = 2, tensor = 3, answer = 4 };
inline constexpr std::uintptr_t kKinds = 8;

const char* name_of(Kind kind);
/// A number that no handle had before.
std::uintptr_t next_handle(Kind kind);
[[noreturn]] void refuse(Kind need, std::uintptr_t got);

/// The objects of one kind.
template <class Object, class Handle, Kind kind>
class Handles {
 public:
  Handle* add(std::shared_ptr<Object> object) {
    const std::uintptr_t id = next_handle(kind);
    const std::lock_guard lock(mutex_);
    objects_.emplace(id, std::move(object));
    return reinterpret_cast<Handle*>(id);
  }

  /// BadHandle where there is no such object.
  std::shared_ptr<Object> at(const Handle* handle) {
    const auto id = reinterpret_cast<std::uintptr_t>(handle);
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(id);
    if (found == objects_.end()) refuse(kind, id);
    return found->second;
  }

  void remove(const Handle* handle) {
    if (!handle) return;
    const std::shared_ptr<Object> last = at(handle);  // goes when nothing is locked any more
    const std::lock_guard lock(mutex_);
    objects_.erase(reinterpret_cast<std::uintptr_t>(handle));
  }

  /// Never destroyed: threads may still use it while the process ends.
  static Handles& all() {
    static Handles& only = *new Handles;
    return only;
  }

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, std::shared_ptr<Object>> objects_;
};

/// Keeps the reason for tc_error(), and gives the status. In a catch block.
tc_status status_of_exception();

/// What the body throws becomes a status.
template <class Body>
tc_status guarded(const Body& body) {
  try {
    body();
    return TC_OK;
  } catch (...) {
    return status_of_exception();
  }
}

/// UserError on a null pointer; `what` names it.
inline void check_pointer(const void* pointer, const char* what) {
  if (!pointer) tensor::fail(what, "got NULL, need a pointer");
}
template <class T>
T& need(T* pointer, const char* what) {
  check_pointer(pointer, what);
  return *pointer;
}
inline std::span<const std::byte> span_of(const void* bytes, std::size_t size) {
  check_pointer(bytes, "bytes");
  return {static_cast<const std::byte*>(bytes), size};
}

}  // namespace models::c
