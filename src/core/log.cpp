// The sink of the process.
#include "tensor/log.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <ostream>
#include <utility>

namespace tensor {

namespace {

constexpr int kNobody = 255;

struct Listener {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;
  std::atomic<int> least{kNobody};  // looked at before anything is locked
};

// Never destroyed: threads may log while the process ends.
Listener& listener() {
  static Listener& only = *new Listener;
  return only;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, LogLevel level) {
  return out << (level == LogLevel::info ? "info" : "warning");
}

void set_log(LogSink sink, LogLevel least) {
  Listener& l = listener();
  const std::lock_guard lock(l.mutex);
  l.least = sink ? static_cast<int>(least) : kNobody;
  l.sink = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
}

bool is_logged(LogLevel level) { return static_cast<int>(level) >= listener().least; }

void log_text(LogLevel level, std::string_view text) {
  Listener& l = listener();
  std::shared_ptr<const LogSink> sink;
  {
    const std::lock_guard lock(l.mutex);
    if (is_logged(level)) sink = l.sink;
  }
  if (!sink) return;
  try {
    (*sink)(level, text);
  } catch (...) {  // a message is worth no failure
  }
}

}  // namespace tensor
