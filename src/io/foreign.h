// What a file holds is sound, but no tensor can hold it: within an archive it is an error only for
// whoever asks for it.
#pragma once

#include <string>

#include "tensor/error.h"

namespace tensor {

class ForeignMember : public UserError {
 public:
  using UserError::UserError;
};

/// Throws a ForeignMember, written as `fail` does.
template <class... Parts>
[[noreturn]] void refuse_member(std::string_view where, const Parts&... parts) {
  try {
    fail(where, parts...);
  } catch (const UserError& error) {
    throw ForeignMember(error.what());
  }
}

}  // namespace tensor
