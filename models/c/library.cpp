// The C interface: the library itself, errors and handles.
#include <atomic>
#include <new>

#include "models/c/handles.h"
#include "tensor/log.h"
#include "tensor/version.h"

namespace models::c {

namespace {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

tc_status keep(tc_status status, const char* text) noexcept {
  try {
    last_error() = text;
  } catch (const std::bad_alloc&) {
    last_error().clear();
  }
  return status;
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::options:
      return "options";
    case Kind::model:
      return "a model";
    case Kind::tensor:
      return "a tensor";
    case Kind::answer:
      return "an answer";
  }
  return "nothing";
}

std::uintptr_t next_handle(Kind kind) {
  static std::atomic<std::uintptr_t> count{1};
  return count++ * kKinds + static_cast<std::uintptr_t>(kind);
}

void refuse(Kind need, std::uintptr_t got) {
  tensor::TextWriter text;
  text << "handle: got ";
  const std::uintptr_t kind = got % kKinds;
  if (got == 0)
    text << "NULL";
  else if (kind != static_cast<std::uintptr_t>(need) && kind >= 1 && kind <= 4 && got > kKinds)
    text << "one of " << name_of(static_cast<Kind>(kind)) << ", or a number";
  else
    text << "one that was freed, or a number";
  text << ", need that of " << name_of(need);
  throw BadHandle(text.str());
}

tc_status status_of_exception() {
  try {
    throw;
  } catch (const BadHandle& error) {
    return keep(TC_BAD_HANDLE, error.what());
  } catch (const tensor::UserError& error) {
    return keep(TC_BAD_ARGUMENT, error.what());
  } catch (const std::bad_alloc&) {
    return keep(TC_NO_MEMORY, "memory: there is not enough of it for this call");
  } catch (const std::exception& error) {
    return keep(TC_FAILED, error.what());
  } catch (...) {
    return keep(TC_FAILED, "an exception of an unknown type");
  }
}

}  // namespace models::c

using namespace models::c;

const char* tc_version(void) { return tensor::version().data(); }

int tc_abi(void) { return TC_ABI; }

const char* tc_error(void) { return last_error().c_str(); }

const char* tc_status_name(int status) {
  switch (status) {
    case TC_OK:
      return "TC_OK";
    case TC_BAD_ARGUMENT:
      return "TC_BAD_ARGUMENT";
    case TC_BAD_HANDLE:
      return "TC_BAD_HANDLE";
    case TC_NO_MEMORY:
      return "TC_NO_MEMORY";
    case TC_FAILED:
      return "TC_FAILED";
  }
  return "no status";
}

tc_status tc_set_log(tc_log_function function, void* user, int least) {
  return guarded([&] {
    if (least != TC_LOG_INFO && least != TC_LOG_WARNING)
      tensor::fail("tc_set_log", "got the level ", least, ", need TC_LOG_INFO or TC_LOG_WARNING");
    if (!function) return tensor::set_log(nullptr);
    tensor::set_log(
        [function, user](tensor::LogLevel level, std::string_view text) {
          function(user, level == tensor::LogLevel::info ? TC_LOG_INFO : TC_LOG_WARNING,
                   std::string(text).c_str());
        },
        least == TC_LOG_INFO ? tensor::LogLevel::info : tensor::LogLevel::warning);
  });
}
