// The file of a cost model: a header that says what it has learned from, then the trees.
#pragma once

#include <string>
#include <string_view>

namespace tensor {

/// The bytes of a file with these trees, which want so many features.
std::string with_header(std::string_view trees, std::size_t columns);
/// The trees. UserError, with the file's `name`, when it is damaged, of another format, or has
/// learned from other features than this version's or from others than `columns` of them.
std::string_view without_header(std::string_view file, const std::string& name,
                                std::size_t columns);

}  // namespace tensor
