// Errors: UserError is the caller's to mend (bad shape, file, option); InternalError is a fault of
// this library.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "tensor/text.h"

namespace tensor {

/// Base of every exception this library throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Something the caller passed is wrong. The text says what, what was got, what is needed and how
/// to mend it.
class UserError : public Error {
 public:
  using Error::Error;
};

/// An invariant of the library does not hold: please report it.
class InternalError : public Error {
 public:
  using Error::Error;
};

/// The caller asked for what was under way to stop (Executable::run with a stop_token).
class Cancelled : public Error {
 public:
  using Error::Error;
};

/// Throws a UserError "where: parts...", every part written with operator<<.
template <class... Parts>
[[noreturn]] void fail(std::string_view where, const Parts&... parts) {
  TextWriter text;
  text << where << ": ";
  (text << ... << parts);
  throw UserError(text.str());
}

/// Throws an InternalError, written as `fail` does.
template <class... Parts>
[[noreturn]] void internal_error(std::string_view where, const Parts&... parts) {
  TextWriter text;
  text << where << ": ";
  (text << ... << parts);
  text << " (a fault in tensor itself: please report it)";
  throw InternalError(text.str());
}

}  // namespace tensor
