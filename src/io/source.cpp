#include "src/io/source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tensor/error.h"

namespace tensor {

struct Source::Handle {
  int descriptor = -1;
  explicit Handle(int descriptor) : descriptor(descriptor) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { ::close(descriptor); }
};

Source Source::open(const std::string& path) {
  // Without O_NONBLOCK a named pipe in place of the file would block for ever.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail(path, "cannot be opened: ", std::strerror(errno));
  Source source;
  source.name_ = path;
  source.file_ = std::make_shared<Handle>(descriptor);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail(path, "cannot be examined: ", std::strerror(errno));
  if (S_ISDIR(status.st_mode)) fail(path, "is a folder, need a file");
  if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file");
  source.size_ = status.st_size;
  return source;
}

Source::Source(std::span<const std::byte> bytes, std::string name)
    : name_(std::move(name)),
      size_(static_cast<std::int64_t>(bytes.size())),
      memory_(bytes.data()) {}

void Source::check(std::int64_t offset, std::int64_t count) const {
  if (offset < 0 || count < 0 || offset > size_ || count > size_ - offset)
    fail(name_, "ends after ", size_, " bytes, need ", count, " more from byte ", offset, " on");
}

void Source::read(std::int64_t offset, std::span<std::byte> out) const {
  check(offset, static_cast<std::int64_t>(out.size()));
  if (out.empty()) return;
  if (!file_) {
    std::memcpy(out.data(), memory_ + offset, out.size());
    return;
  }
  while (!out.empty()) {
    const ssize_t got = ::pread(file_->descriptor, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(name_, "cannot be read: ", std::strerror(errno));
    if (got == 0) fail(name_, "has become shorter while it was read");
    out = out.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

std::vector<std::byte> Source::read_bytes(std::int64_t offset, std::int64_t count) const {
  check(offset, count);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  read(offset, bytes);
  return bytes;
}

std::string Source::read_text(std::int64_t offset, std::int64_t count) const {
  check(offset, count);
  std::string text(static_cast<std::size_t>(count), '\0');
  read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

std::shared_ptr<const std::byte> Source::map() const {
  if (!file_) return {std::shared_ptr<const void>(), memory_};
  const auto length = static_cast<std::size_t>(size_);
  void* memory = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file_->descriptor, 0);
  if (memory == MAP_FAILED) fail(name_, "cannot be mapped into memory: ", std::strerror(errno));
  return {static_cast<const std::byte*>(memory),
          [length](const std::byte* data) { ::munmap(const_cast<std::byte*>(data), length); }};
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text.substr(0, kLongest)) {
    const auto code = static_cast<unsigned char>(c);
    if (code >= 0x20 && code < 0x7f) {
      result += c;
    } else {
      result += "\\x";
      result += kHex[code >> 4];
      result += kHex[code & 15];
    }
  }
  return result + (text.size() > kLongest ? "...\"" : "\"");
}

}  // namespace tensor
