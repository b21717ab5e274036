// SharedLibrary: a library opened at run time, so that programs start on machines without it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tensor::cuda {

class SharedLibrary {
 public:
  /// Opens the first of `candidates` (file names for the system's search, or paths) and keeps it
  /// open. UserError naming every candidate, why it did not open, and `remedy`, when none does.
  SharedLibrary(std::string_view what, const std::vector<std::string>& candidates,
                std::string_view remedy);

  /// The function of this name. UserError when the library is too old to have it.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }
  const std::string& path() const { return path_; }

 private:
  void* symbol(const char* name) const;
  std::string path_;
  void* handle_ = nullptr;
};

}  // namespace tensor::cuda
