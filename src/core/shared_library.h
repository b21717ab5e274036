// SharedLibrary: a library opened at run time, so that programs start on machines without it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tensor {

class SharedLibrary {
 public:
  /// Opens the first of `candidates` (file names for the system's search, or paths) and keeps it
  /// open. UserError naming every candidate, why it did not open, and `remedy`, when none does.
  SharedLibrary(std::string_view what, const std::vector<std::string>& candidates,
                std::string_view remedy);

  /// The same library once more, with variables of its own: as a process has it that just begins.
  /// UserError with `remedy` where the system does not allow it.
  SharedLibrary copy(std::string_view what, std::string_view remedy) const;

  /// From now on the file of this name is `find`, a GPU that tests pretend to have, or absent where
  /// `find` is empty. To be called before the library is opened. For its copy() the name is "copy
  /// of" that.
  using Find = std::function<void*(const char* function)>;
  static void stand_in(const std::string& name, Find find);

  /// The function of this name. UserError when the library is too old to have it.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }
  /// Null when the library is too old to have it.
  template <class Function>
  Function* newer_function(const char* name) const {
    return reinterpret_cast<Function*>(find(name));
  }
  const std::string& path() const { return path_; }

 private:
  SharedLibrary() = default;
  void* find(const char* name) const;
  void* symbol(const char* name) const;
  std::string path_;
  void* handle_ = nullptr;
  Find stand_in_;
};

}  // namespace tensor
