// The rules of RFC 9112 for the length of a body, and the bounds of this server.
#include "models/server/uploads.h"

#include <chrono>

namespace models::server {

namespace {

constexpr const char* kNeed = "the bytes of a PNG, JPEG, BMP or WebP image as the body";

/// Throws on headers that leave the length of the body open, or say what is not understood here.
void check_headers(const httplib::Request& request) {
  if (const std::string encoding = request.get_header_value("Content-Encoding"); !encoding.empty())
    throw Refusal{415, "packed bodies are not taken", "Content-Encoding: " + encoding, kNeed};
  if (request.is_multipart_form_data())
    throw Refusal{415, "forms are not taken", "Content-Type: multipart/form-data", kNeed};
  const std::string transfer = request.get_header_value("Transfer-Encoding");
  if (transfer == "chunked") return;
  if (!transfer.empty())
    throw Refusal{400, "the transfer encoding is not known", transfer,
                  "chunked, or a Content-Length"};
  const auto count = request.get_header_value_count("Content-Length");
  if (count == 0)
    throw Refusal{411, "the length of the body is missing", "no Content-Length",
                  "a Content-Length, or Transfer-Encoding: chunked"};
  const std::string length = request.get_header_value("Content-Length");
  const bool number = !length.empty() && length.find_first_not_of("0123456789") == length.npos;
  if (count > 1 || !number || length.size() > 18)
    throw Refusal{400, "the Content-Length is no length", count > 1 ? "several" : length,
                  "one whole number"};
}

}  // namespace

std::string read_upload(const httplib::Request& request, const httplib::ContentReader& reader,
                        std::int64_t most, double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr std::uint64_t kDropped = 64 << 20;  // bytes read at most of what is too long
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(seconds));
  const auto limit = static_cast<std::uint64_t>(most);
  std::string body;
  std::uint64_t received = 0;
  bool late = false;
  const auto take = [&](const char* data, std::size_t size) {
    received += size;
    if (received <= limit)
      body.append(data, size);
    else
      body = std::string();
    late = Clock::now() > end;
    return !late && received <= kDropped;
  };
  try {
    check_headers(request);
  } catch (const Refusal& refusal) {
    if (refusal.status == 415 && request.is_multipart_form_data())
      reader([](const httplib::MultipartFormData&) { return true; }, take);
    else if (refusal.status == 415)
      reader(take);
    throw;
  }
  const bool whole = reader(take);
  const std::string declared = request.get_header_value("Content-Length");
  if (received > limit)
    throw Refusal{
        413, "the image is too large",
        declared.empty() ? "more than " + std::to_string(most) + " bytes" : declared + " bytes",
        "at most " + std::to_string(most) + " bytes"};
  const std::string got = std::to_string(received) + " bytes";
  if (late) throw Refusal{408, "the upload takes too long", got + " so far", "a faster connection"};
  if (!whole)
    throw Refusal{400, "the body ends early", declared.empty() ? got : got + " of " + declared,
                  "the whole image"};
  if (body.empty()) throw Refusal{400, "the body is empty", "0 bytes", kNeed};
  return body;
}

}  // namespace models::server
