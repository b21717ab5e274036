// ReadFiles: the files that a run reads, none of which is to be overwritten by what it writes.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace models {

class ReadFiles {
 public:
  /// `kind` is how messages call them: "input image".
  ReadFiles(const char* kind, const std::vector<std::string>& files);
  /// UserError where the target of an option is one of them.
  void refuse_to_overwrite(const std::string& option, const std::string& target,
                           const std::string& mending) const;

 private:
  using Identity = std::pair<dev_t, ino_t>;
  /// The same however a path leads to the file; nothing where there is none.
  static std::optional<Identity> identity(const std::string& path);

  const char* kind_;
  std::set<Identity> ids_;
};

}  // namespace models
