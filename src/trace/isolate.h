// A group by itself: for lowering and measuring it, and for knowing it again in another model.
#pragma once

#include <string>
#include <string_view>

#include "src/trace/group.h"

namespace tensor {

/// A group in a graph of its own, numbered from 0: first what it reads, in the group's order, then
/// its nodes, in theirs. Values from outside are inputs, whatever they are views of; constants stay
/// constants, and so do views of them. Every value keeps its layout, offset included.
struct Isolated {
  LaidOutGraph laid;
  Group group;  // the same reads and writes at the same places, with new numbers
};
Isolated isolate(const LaidOutGraph& laid, const Group& group);

/// One line that says what a group computes: operators with their attributes, the types of what it
/// reads, which of that is constant and in which order its axes lie in memory if not in their own,
/// and what is written. Equal in any model, whatever stands around the group; numbers that
/// constants hold are left out. "%0 = f16(197, 768); %1 = constant f16(768, 768); %2 = matmul(%0,
/// %1); return %2"
std::string problem_text(const Graph& graph, const Group& group);

/// The text of the same problem with f16 for bf16 and bf16 for f16, wherever they stand; a problem
/// that has neither is its own twin.
std::string twin_text(std::string_view problem);

}  // namespace tensor
