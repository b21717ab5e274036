#include "models/common/list_images.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <system_error>

#include "models/common/text.h"
#include "tensor/error.h"
#include "tensor/io.h"
#include "tensor/text.h"

namespace models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEndings = ".png, .jpg, .jpeg, .jpe, .jfif, .bmp or .webp";

bool ends_as_image(const fs::path& path) {
  static const std::set<std::string> kKnown = {".png",  ".jpg", ".jpeg", ".jpe",
                                               ".jfif", ".bmp", ".webp"};
  return kKnown.contains(lower(path.extension().string()));
}

/// What a file is by its content: "GIF", or nothing.
std::string format_of(const fs::path& path) {
  std::array<char, 32> start{};
  tensor::Classic<std::ifstream> file(path, std::ios::binary);
  file.read(start.data(), start.size());
  const auto size = static_cast<std::size_t>(file.gcount());
  return std::string(tensor::image_format(std::as_bytes(std::span(start).first(size))));
}

/// "a.gif (GIF), b.tif (TIFF) and 7 more".
std::string named(std::vector<std::string> names) {
  constexpr std::size_t kMost = 10;
  std::sort(names.begin(), names.end());
  const std::size_t shown = std::min(kMost, names.size());
  std::string text =
      joined({names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown)}, ", ");
  if (names.size() > shown) text += " and " + std::to_string(names.size() - shown) + " more";
  return text;
}

void add_folder(const std::string& folder, ImageList& list) {
  std::vector<std::string> found, others;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code unknown;
    if (ends_as_image(entry.path()))
      found.push_back(entry.path().string());
    else if (entry.is_regular_file(unknown))  // a pipe would be waited for
      if (const std::string format = format_of(entry.path()); !format.empty())
        others.push_back(name + " (" + format + ")");
  }
  if (error) tensor::fail(folder, "cannot be listed: ", error.message());
  if (found.empty())
    tensor::fail(folder, "holds no ", kEndings, " files (subfolders are not searched)",
                 others.empty() ? "" : ", only " + named(others));
  if (!others.empty())
    list.notes.push_back(folder + ": passed over, for their names do not end in " + kEndings +
                         ": " + named(others));
  std::sort(found.begin(), found.end());
  list.files.insert(list.files.end(), found.begin(), found.end());
}

}  // namespace

ImageList list_images(const std::vector<std::string>& paths) {
  ImageList list;
  for (const std::string& path : paths) {
    if (path == "-") tensor::fail(path, "standard input is not read: name files or folders");
    std::error_code error;
    if (fs::is_directory(path, error))
      add_folder(path, list);
    else
      list.files.push_back(path);
  }
  return list;
}

}  // namespace models
