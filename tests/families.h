// Families, asked one at a time about a group of a graph.
#pragma once

#include <memory>
#include <optional>

#include "src/kernels/cpu/kernel.h"
#include "src/kernels/cuda/family.h"
#include "src/runtime/target.h"

namespace tensor {

template <class Machine, class Built>
std::optional<Implementation<Built>> asked(const Family<Machine, Built>& family,
                                           const LaidOutGraph& laid, const Group& group,
                                           const Machine& machine) {
  return family.consider(isolate(laid, group), machine);
}

template <class Machine, class Built>
std::optional<double> estimate_of(const Family<Machine, Built>& family, const LaidOutGraph& laid,
                                  const Group& group, const Machine& machine) {
  const auto implementation = asked(family, laid, group, machine);
  return implementation ? std::optional(implementation->microseconds) : std::nullopt;
}

template <class Machine, class Built>
std::optional<Space> space_of(const Family<Machine, Built>& family, const LaidOutGraph& laid,
                              const Group& group, const Machine& machine) {
  const auto implementation = asked(family, laid, group, machine);
  return implementation && implementation->space ? std::optional(implementation->space())
                                                 : std::nullopt;
}

/// Of a group that the family takes.
template <class Machine, class Built>
Built built_by(const Family<Machine, Built>& family, const LaidOutGraph& laid, const Group& group,
               const Machine& machine) {
  return asked(family, laid, group, machine).value().build(isolate(laid, group));
}

/// What a family of the target may try, nullptr where there is one way only or it declines.
inline const Space* space_of(const detail::Target& target, const LaidOutGraph& laid,
                             const Group& group, int family) {
  for (const Offer& offer : target.offers->of(isolate(laid, group)))
    if (offer.family == family) return offer.space();
  return nullptr;
}

}  // namespace tensor

namespace tensor::cpu {
inline CostFn cpu_cost(const Machine& machine) {
  return cost_of(std::make_shared<Families>(cpu_families(), machine));
}
inline std::unique_ptr<Kernel> build_group(const LaidOutGraph& laid, const Group& group,
                                           const Machine& machine) {
  return Families(cpu_families(), machine).build(laid, group);
}
}  // namespace tensor::cpu

namespace tensor::cuda {
inline CostFn cuda_cost(const Machine& machine) {
  return cost_of(std::make_shared<Families>(cuda_families(), machine));
}
inline Lowered lower_group(const LaidOutGraph& laid, const Group& group, const Machine& machine) {
  return Families(cuda_families(), machine).build(laid, group);
}
}  // namespace tensor::cuda
