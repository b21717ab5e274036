// Curves: how fast the best so far is, trial by trial. What searches are compared by.
#pragma once

#include <functional>
#include <vector>

#include "src/tune/measurer.h"
#include "src/tune/search.h"

namespace tensor {

/// Searches task `task` of the measurer for so many trials, fewer where the space has no more, in
/// batches; the model learns after each. Returned is the best after each trial; its time is
/// infinite as long as nothing has run.
/// `is_enough` ends the search after a batch.
std::vector<Search::Best> search_curve(
    Search& search, int task, Measurer& measurer, CostModel& model, std::size_t trials,
    std::size_t batch, const std::function<bool(const Search::Best&)>& is_enough = {});

/// The first trial after which the curve is at `microseconds` or below; one more than it has
/// trials where it never is.
std::size_t trials_to(std::span<const double> curve, double microseconds);

}  // namespace tensor
