// Rivals: schedules that are about as fast alone as one that was chosen, and may be faster among
// the other kernels of a model.
#pragma once

#include <cstddef>
#include <vector>

#include "src/tune/search.h"

namespace tensor {

/// At most `most` that the search has measured: what the analytic model takes, where a table would
/// let it be chosen; then those that are least like what is in the list already and the incumbent,
/// since what is alike overlaps alike. Of several the fastest.
std::vector<Schedule> rivals_of(const Schedule& incumbent, const Search& search, std::size_t most);

}  // namespace tensor
