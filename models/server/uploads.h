// Reading what a client sends, which may be too much, too slow, or not what its headers say.
#pragma once

#include <httplib.h>

#include <string>

namespace models::server {

/// Why a request is not answered, in the words of {"error": {"what", "got", "need"}}.
struct Refusal {
  int status = 400;
  std::string what, got, need;
};

/// Reads a body of at most `most` bytes within `seconds`; throws Refusal. What is too long is read
/// on for a while and dropped, so that the client comes to reading the answer.
std::string read_upload(const httplib::Request& request, const httplib::ContentReader& reader,
                        std::int64_t most, double seconds);

}  // namespace models::server
