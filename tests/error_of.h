// What a UserError says, for the tests of its text.
#pragma once

#include <functional>
#include <string>

#include "tensor/error.h"

namespace tensor::check {

/// The text of the UserError that `body` throws, or "no error".
inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tensor::check
