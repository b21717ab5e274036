// Placement: where every value of a planned graph lives, on whatever device it runs.
#pragma once

#include <algorithm>
#include <vector>

#include "src/runtime/memory_plan.h"
#include "src/trace/group.h"
#include "src/trace/layout.h"

namespace tensor::detail {

enum class Place : std::uint8_t { arena, input, output, constant };

/// The first element of a value: byte `offset` of the arena, of an input or output, or of a
/// constant.
struct Location {
  Place place = Place::arena;
  std::size_t index = 0;  // which input, output or constant
  std::int64_t offset = 0;
};

struct Placement {
  MemoryPlan memory;               // of the arena
  std::vector<ValueId> constants;  // by Location::index
  /// Of every value; views lie in their root's memory.
  std::vector<Location> locations;
  /// Outputs that no kernel writes to their place: views, inputs, constants, repeated outputs.
  std::vector<std::size_t> copied_outputs;

  bool is_copied(std::size_t output) const {
    return std::find(copied_outputs.begin(), copied_outputs.end(), output) != copied_outputs.end();
  }
  const Location& of(ValueId id) const { return locations[at(id)]; }
};

/// A group's result that the caller wants is written to the caller's memory, if it is row-major or
/// wanted in `any_order`; all else that groups write goes to one arena, for as long as it is read.
Placement place_values(const LaidOutGraph& laid, const FusionPlan& plan, bool any_order = false);

}  // namespace tensor::detail
