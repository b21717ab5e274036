// Problem: a group as it is tuned, alone; and all ways in which families may run it.
#pragma once

#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/kernels/schedule.h"
#include "src/runtime/target.h"
#include "src/tune/reference.h"

namespace tensor {

/// Of all families of the target that may be tried: not those that think they take many times as
/// long as the best one, nor the host.
std::vector<Offer> offers_of(const detail::Target& target, const Isolated& alone);

/// The family and the schedule that Group wants.
struct Choice {
  int family = -1;
  std::string schedule;
};

class Problem {
 public:
  /// Of a model with so many bytes of constants, its reference made with this effort at most.
  Problem(std::string text, Isolated alone, std::vector<Offer> offers,
          double model_bytes = std::numeric_limits<double>::infinity(),
          double reference_effort = Slices::kMostEffort);

  const std::string& text() const { return text_; }  // problem_text
  const Isolated& alone() const { return alone_; }
  const std::vector<Offer>& offers() const { return offers_; }
  /// Weights come from memory, unless those of the whole model stay in a cache.
  double model_bytes() const { return model_bytes_; }

  /// The spaces of all families as one, whose sketches are called "family.sketch", or "family"
  /// where there is one way only.
  const Space& space() const { return space_; }
  /// What a schedule of that space is to the families; family -1 if it is none of theirs.
  Choice choice(const Schedule& schedule) const;
  /// The schedule of that space, as text, for a family's own.
  static std::string joined(const std::string& family, const std::string& schedule);
  /// The family and its own schedule.
  static std::pair<std::string, std::string> parted(const std::string& text);
  /// The group alone, run so.
  Group group(const Schedule& schedule) const;

  /// Made when first asked for; any number of threads may ask.
  const Reference& reference() const;

 private:
  std::string text_;
  Isolated alone_;
  std::vector<Offer> offers_;
  double model_bytes_;
  double reference_effort_;
  Space space_;
  mutable std::once_flag made_;
  mutable std::unique_ptr<const Reference> reference_;
};

}  // namespace tensor
