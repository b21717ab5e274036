// A fixed-width bitmap font for ASCII 32 to 126.
#pragma once

#include <cstdint>

namespace models {

inline constexpr std::int64_t kGlyphWidth = 5, kGlyphHeight = 9;  // without the gap to the next

/// Whether the glyph of `letter` is inked at a column and row; other letters than ASCII show as
/// '?'.
bool inked(char letter, std::int64_t column, std::int64_t row);

}  // namespace models
