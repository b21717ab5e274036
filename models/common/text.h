// Text for machines and for one line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace models {

/// A text between quotes with JSON's escapes; bytes that are not UTF-8 become U+FFFD.
std::string json_text(std::string_view text);

/// The text on one line, control characters blanked, lines joined by "; ".
std::string one_line(std::string_view text);

/// The letters A to Z as small ones, whatever the locale.
std::string lower(std::string text);

/// "a, b", with ", " between.
std::string joined(const std::vector<std::string>& words, const char* between);

}  // namespace models
