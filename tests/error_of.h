// What an error says, for the tests of its text.
#pragma once

#include <functional>
#include <string>

#include "tensor/error.h"

namespace tensor::check {

/// The text of the UserError (or of another kind, if asked for) that `body` throws, or "no error".
template <class Kind = UserError>
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Kind& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tensor::check
