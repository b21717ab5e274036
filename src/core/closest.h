// "Did you mean": the closest of some names to one that was not found.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tensor {

/// The candidate with the smallest edit distance to `name`, empty when none is near (over a third
/// of it differs).
/// Empty too for a name longer than any real one; only the first 1000 candidates of a fitting
/// length are looked at.
std::string_view closest(std::string_view name, const std::vector<std::string_view>& candidates);

/// "; did you mean \"X\"?", or nothing.
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& candidates);

}  // namespace tensor
