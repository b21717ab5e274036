// Which files of those named on a command line are images.
#pragma once

#include <string>
#include <vector>

namespace models {

struct ImageList {
  std::vector<std::string> files;
  std::vector<std::string> notes;  // a line for each folder of which pictures were passed over
};

/// Files as they are named, and of folders those whose names end as images' do (sorted, not
/// recursive).
ImageList list_images(const std::vector<std::string>& paths);

}  // namespace models
