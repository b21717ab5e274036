// What a group must do at least, whatever runs it.
#pragma once

#include "src/trace/group.h"

namespace tensor {

struct Work {
  double flops = 0;  // multiplications and additions
  double bytes = 0;  // read and written once each
};
Work work_of(const Graph& graph, const Group& group);

}  // namespace tensor
