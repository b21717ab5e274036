#include "src/kernels/cuda/driver/kernel_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "src/core/cache_folder.h"
#include "src/core/checksum.h"
#include "src/io/atomic_file.h"
#include "src/io/bytes.h"
#include "src/io/source.h"
#include "tensor/log.h"

namespace tensor::cuda {

namespace fs = std::filesystem;

namespace {

// An entry: magic, the lengths of key, log and code (8 bytes each, little-endian), the three, and
// the CRC-32 of all before it.
constexpr std::string_view kMagic = "tensor1\n";
constexpr std::size_t kHeader = 8 + 3 * 8, kChecksum = 4;
constexpr std::string_view kExtension = ".kernel";

std::uint32_t checksum(Bytes bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// Two keys of one hash are told apart by the key in the entry.
std::string file_name(const std::string& key) {
  return hexadecimal(hash_of(key), 16) + std::string(kExtension);
}

void append(std::string& text, std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i) & 0xff);
}

// Held while one process makes an entry; the system lets go of it when the process dies.
class Lock {
 public:
  explicit Lock(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (descriptor_ < 0) return;  // then several may make it
    while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

 private:
  int descriptor_;
};

// Machine code is run as it is found: nobody else may be able to put some there.
std::string folder_trouble(const std::string& folder) {
  std::error_code error;
  fs::create_directories(fs::path(folder).parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return folder + " cannot be made: " + std::strerror(errno);
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0)
    return folder + " cannot be examined: " + std::strerror(errno);
  if (!S_ISDIR(status.st_mode)) return folder + " is not a folder";
  if (status.st_uid != ::geteuid()) return folder + " belongs to another user";
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return folder + " can be written by others: run chmod 700 on it";
  if (::access(folder.c_str(), R_OK | W_OK | X_OK) != 0)
    return folder + " cannot be written: " + std::strerror(errno);
  return {};
}

}  // namespace

KernelCache::KernelCache(std::string folder, std::int64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes), trouble_(folder_trouble(folder_)) {
  if (!trouble_.empty()) log_trouble();
}

KernelCache KernelCache::standard() { return KernelCache(cache_folder()); }

void KernelCache::log_trouble() const {
  log(LogLevel::warning, "kernel cache: ", trouble_, "; every process compiles its kernels anew");
}

std::string KernelCache::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

Cubin KernelCache::get(const std::string& key, const std::function<Cubin()>& make,
                       const Cubin* refused) {
  if (!trouble().empty()) return make();
  const std::string name = file_name(key), path = folder_ + "/" + name;
  const auto found_on_disk = [&] {
    auto found = load(path, key);
    if (found && refused && found->code == refused->code) found.reset();
    return found;
  };
  if (auto found = found_on_disk()) return *std::move(found);
  // A few locks for all entries: enough to keep processes from compiling the same one together.
  const Lock lock(folder_ + "/lock-" + name.substr(0, 2));
  if (auto found = found_on_disk()) return *std::move(found);
  Cubin made = make();
  store(path, key, made);
  return made;
}

std::optional<Cubin> KernelCache::load(const std::string& path, const std::string& key) const {
  try {
    const Source file = Source::open(path);
    if (file.size() > most_bytes_) return std::nullopt;
    const std::vector<std::byte> bytes = file.read_bytes(0, file.size());
    const Bytes all(bytes);
    if (all.size() < kHeader + kChecksum ||
        std::memcmp(all.data(), kMagic.data(), kMagic.size()) != 0)
      return std::nullopt;
    const std::size_t body = all.size() - kChecksum;
    if (checksum(all.first(body)) != little_endian(all, body, 4)) return std::nullopt;
    const std::uint64_t key_size = little_endian(all, 8, 8), log_size = little_endian(all, 16, 8),
                        code_size = little_endian(all, 24, 8);
    const std::uint64_t room = body - kHeader;
    if (key_size > room || log_size > room - key_size || code_size != room - key_size - log_size)
      return std::nullopt;
    const auto text = [&](std::size_t at, std::size_t size) {
      return std::string(reinterpret_cast<const char*>(all.data()) + at, size);
    };
    if (text(kHeader, key_size) != key) return std::nullopt;
    const std::size_t log = kHeader + key_size, code = log + log_size;
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now
    return Cubin{{bytes.begin() + static_cast<std::ptrdiff_t>(code),
                  bytes.begin() + static_cast<std::ptrdiff_t>(code + code_size)},
                 text(log, log_size)};
  } catch (const UserError&) {
    return std::nullopt;  // not there, or not readable
  }
}

void KernelCache::store(const std::string& path, const std::string& key, const Cubin& cubin) {
  std::string text(kMagic);
  append(text, key.size(), 8);
  append(text, cubin.log.size(), 8);
  append(text, cubin.code.size(), 8);
  text += key + cubin.log;
  text.append(reinterpret_cast<const char*>(cubin.code.data()), cubin.code.size());
  append(text, checksum(std::as_bytes(std::span(text))), 4);
  try {
    AtomicFile file(path);
    file.write(text);
    file.commit();
    trim();
  } catch (const UserError& error) {
    const std::lock_guard lock(mutex_);
    trouble_ = error.what();  // a full disk, say: go on without
    log_trouble();
  }
}

void KernelCache::trim() const {
  struct File {
    fs::path path;
    fs::file_time_type used;
    std::int64_t bytes;
  };
  std::vector<File> entries;
  std::int64_t total = 0;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (const auto& item : fs::directory_iterator(folder_, error)) {
    const std::string name = item.path().filename().string();
    std::error_code gone;  // by another process
    const auto used = item.last_write_time(gone);
    const auto bytes = gone ? 0 : static_cast<std::int64_t>(item.file_size(gone));
    if (gone) continue;
    if (name.find(".tmp-") != std::string::npos) {
      // Its writer was killed, unless it is very slow.
      if (now - used > std::chrono::hours(1)) fs::remove(item.path(), gone);
    } else if (name.ends_with(kExtension)) {
      entries.push_back({item.path(), used, bytes});
      total += bytes;
    }
  }
  if (total <= most_bytes_) return;
  std::sort(entries.begin(), entries.end(),
            [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& entry : entries) {
    if (total <= most_bytes_ / 10 * 9) break;  // some room for the next ones
    if (fs::remove(entry.path, error)) total -= entry.bytes;
  }
}

}  // namespace tensor::cuda
