// Log: what the library has to say that is neither a result nor an error: slow ways that it takes.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string_view>

#include "tensor/export.h"
#include "tensor/text.h"

namespace tensor {

enum class LogLevel : std::uint8_t {
  info,    ///< what took its time: a size was compiled
  warning  ///< what takes time again and again, and how to mend it
};
/// Prints "info" or "warning".
TENSOR_API std::ostream& operator<<(std::ostream& out, LogLevel level);

/// Takes a message, one line without an end. Any thread may call it, several at a time; what it
/// throws is dropped.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// From now on messages of at least this level go to the sink, of the whole process; without one,
/// as in the beginning, nowhere. A call that began before may still reach the former sink.
TENSOR_API void set_log(LogSink sink, LogLevel least = LogLevel::warning);

/// Whether anybody listens to this level: else a message need not be made.
TENSOR_API bool is_logged(LogLevel level);
TENSOR_API void log_text(LogLevel level, std::string_view text);

/// Logs the parts, written with operator<<.
template <class... Parts>
void log(LogLevel level, const Parts&... parts) {
  if (!is_logged(level)) return;
  TextWriter text;
  (text << ... << parts);
  log_text(level, text.str());
}

}  // namespace tensor
