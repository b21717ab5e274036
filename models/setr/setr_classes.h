// What a class is called and how it is coloured when a checkpoint folder does not say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace models::setr {

/// Cityscapes' names for 19 classes, ADE20K's for 150, otherwise "class 0", "class 1" ...
std::vector<std::string> default_names(std::int64_t classes);

/// 0xRRGGBB: Cityscapes' for 19 classes, otherwise ADE20K's in order (so does Pascal Context),
/// repeated after 150.
std::vector<std::uint32_t> default_colours(std::int64_t classes);

}  // namespace models::setr
