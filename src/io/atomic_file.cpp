#include "src/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tensor/error.h"

namespace tensor {
namespace {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// No two calls of any process share a name, and O_EXCL refuses one that is left over.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter = 0;
  return path + ".tmp-" + std::to_string(::getpid()) + '-' + std::to_string(counter++);
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  const std::string folder = folder_of(path);
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    fail(path, "cannot be written: it is a folder, need the name of a file");
  if (::stat(folder.c_str(), &status) != 0)
    fail(path, "cannot be written: the folder ", folder, ": ", std::strerror(errno));
  do {
    temporary_ = temporary_name(path);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail_with(errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail_with(errno);
  ::close(descriptor_);
  descriptor_ = -1;
  // The new name is in the folder, which has to reach the disk too; some file systems cannot do
  // that.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
}

void AtomicFile::fail_with(int error) const {
  fail(path_, "cannot be written: ", std::strerror(error));
}

}  // namespace tensor
