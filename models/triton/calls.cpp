#include "models/triton/calls.h"

#include <new>

#include "models/common/text.h"
#include "tensor/error.h"

namespace models::triton {

void check(TRITONSERVER_Error* error) {
  if (!error) return;
  const std::string text = TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
  throw tensor::InternalError("the server: " + text);
}

TRITONSERVER_Error* error_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const tensor::UserError& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, one_line(error.what()).c_str());
  } catch (const std::bad_alloc&) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE,
                                 "there is not enough memory for this request");
  } catch (const std::exception& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, one_line(error.what()).c_str());
  } catch (...) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "an exception of an unknown type");
  }
}

void MessageDeleter::operator()(TRITONSERVER_Message* message) const {
  if (TRITONSERVER_Error* error = TRITONSERVER_MessageDelete(message))
    TRITONSERVER_ErrorDelete(error);
}

std::string text_of(TRITONSERVER_Message* message) {
  const char* start = nullptr;
  std::size_t size = 0;
  check(TRITONSERVER_MessageSerializeToJson(message, &start, &size));
  return {start, size};  // the server's text goes with the message
}

Message message_of(const std::string& json) {
  TRITONSERVER_Message* message = nullptr;
  check(TRITONSERVER_MessageNewFromSerializedJson(&message, json.data(), json.size()));
  return Message(message);
}

}  // namespace models::triton
