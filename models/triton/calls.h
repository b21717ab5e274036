// Calls between the server and C++: errors of one side as those of the other.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "models/triton/triton_api.h"

namespace models::triton {

/// Throws what the server complains of, as an InternalError.
void check(TRITONSERVER_Error* error);

/// The exception as the server wants it: what the client can mend as INVALID_ARG, want of memory as
/// UNAVAILABLE, all else as INTERNAL. The caller owns it.
TRITONSERVER_Error* error_of(const std::exception_ptr& exception);

struct MessageDeleter {
  void operator()(TRITONSERVER_Message* message) const;
};
using Message = std::unique_ptr<TRITONSERVER_Message, MessageDeleter>;
std::string text_of(TRITONSERVER_Message* message);
Message message_of(const std::string& json);

/// What a body does, for the server.
template <class Body>
TRITONSERVER_Error* guarded(const Body& body) {
  try {
    body();
    return nullptr;
  } catch (...) {
    return error_of(std::current_exception());
  }
}

}  // namespace models::triton
