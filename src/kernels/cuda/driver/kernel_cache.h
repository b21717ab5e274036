// KernelCache: compiled kernels on disk, one self-contained file each, shared by any number of
// processes. Nothing in it is trusted: a file that is cut short, changed or of another key is made
// anew, and a folder that cannot be used costs only time.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "src/kernels/cuda/driver/compiler.h"

namespace tensor::cuda {

class KernelCache {
 public:
  static constexpr std::int64_t kMostBytes = 256 << 20;

  /// Keeps entries in `folder`, made with access for its owner alone if it is not there; drops the
  /// least recently used ones beyond `most_bytes`.
  explicit KernelCache(std::string folder, std::int64_t most_bytes = kMostBytes);
  /// In cache_folder() (src/core/cache_folder.h).
  static KernelCache standard();

  /// The entry of `key` if it is on disk, otherwise what `make` gives, which is stored. Of several
  /// processes that want the same new entry one makes it and the others wait. An entry that is as
  /// `refused` is made anew. Any number of threads may call it.
  Cubin get(const std::string& key, const std::function<Cubin()>& make,
            const Cubin* refused = nullptr);

  /// Why entries are not kept, empty if they are.
  std::string trouble() const;

 private:
  std::optional<Cubin> load(const std::string& path, const std::string& key) const;
  void store(const std::string& path, const std::string& key, const Cubin& cubin);
  void trim() const;
  void log_trouble() const;

  std::string folder_;
  std::int64_t most_bytes_;
  mutable std::mutex mutex_;
  std::string trouble_;
};

}  // namespace tensor::cuda
