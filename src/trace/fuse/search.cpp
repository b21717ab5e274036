#include "src/trace/fuse/search.h"

#include <algorithm>

namespace tensor::fusion {
namespace {

constexpr std::size_t kLeastPursued = 4;  // sets of a size, however many steps have been taken

// What an operator counts for by itself: a number even if the estimate is none.
double alone(const Choice& choice) { return std::min(choice.price, 1e12); }

}  // namespace

Search::Search(const ComputeGraph& graph, Piece piece, std::vector<std::vector<Choice>> choices,
               std::int64_t steps)
    : graph_(graph),
      piece_(piece),
      choices_(std::move(choices)),
      descendants_(choices_.size(), NodeSet(piece.end - piece.begin)),
      layers_(choices_.size() + 1) {
  for (int i = piece.end - piece.begin - 1; i >= 0; --i) {
    descendants_[at(i)].add(i);
    for (const int c : graph_.consumers[at(piece.begin + i)])
      if (c < piece.end) descendants_[at(i)].add(descendants_[at(c - piece.begin)]);
  }
  states_.push_back(whole());
  layers_.back().states.push_back(0);
  visit(steps);
}

std::vector<const Choice*> Search::partition() const {
  std::vector<const Choice*> result;
  for (int s = 0; states_[at(s)].best.choice; s = states_[at(s)].best.to)
    result.push_back(states_[at(s)].best.choice);
  return result;
}

void Search::for_each_rival(const std::function<void(const Choice&, double)>& use) const {
  for (int s = 0; states_[at(s)].best.choice; s = states_[at(s)].best.to)
    for (const Step& step : states_[at(s)].steps)
      use(*step.choice, states_[at(step.to)].to_go + step.choice->price - states_[at(s)].to_go);
}

Search::State Search::whole() const {
  const int count = piece_.end - piece_.begin;
  State state{NodeSet(count), NodeSet(count), 0, 0};
  for (int i = 0; i < count; ++i) state.rest.add(i);
  for (int i = 0; i < count; ++i) {
    if (!is_read(state.rest, i)) state.sinks.add(i);
    state.alone += alone(choices_[at(i)].front());
  }
  return state;
}

// Every step leads to a smaller set: those of a size are all known when it is their turn. What a
// size does not need of its share of the steps is left to those that follow.
void Search::visit(std::int64_t steps) {
  for (std::size_t size = layers_.size(); --size > 0;) {
    std::vector<int>& layer = layers_[size].states;
    layers_[size].known.clear();
    std::sort(layer.begin(), layer.end(), [&](int a, int b) {
      return std::pair(states_[at(a)].outlook(), a) < std::pair(states_[at(b)].outlook(), b);
    });
    const std::int64_t share = steps / static_cast<std::int64_t>(size);
    std::int64_t taken = 0;
    std::size_t pursued = 0;
    while (pursued < layer.size() && (taken < share || pursued < kLeastPursued))
      taken += add_steps(layer[pursued++]);
    for (std::size_t s = pursued; s < layer.size(); ++s) states_[at(layer[s])].forget();
    layer.resize(pursued);
    steps -= taken;
  }
  for (const int nothing : layers_[0].states) states_[at(nothing)].to_go = 0;
  for (std::size_t size = 1; size < layers_.size(); ++size)
    for (const int state : layers_[size].states) settle(states_[at(state)]);
}

// Some group holds the last operator. It can be taken first, unless an operator that is left reads
// one of its members: then so can only a group that comes after that reader, of which one must hold
// the last operator of all that come after. It is no member of the first group, and neither are
// those that may have to be taken before it in turn, or the groups would need each other.
std::int64_t Search::add_steps(int from) {
  State state = std::move(states_[at(from)]);  // states_ grows below
  std::vector<int> sinks = {state.rest.last()};
  for (std::size_t s = 0; s < sinks.size(); ++s)
    for (const Choice& choice : choices_[at(sinks[s])]) {
      if (!state.rest.contains(choice.nodes)) continue;
      int after = -1;
      for (const int reader : choice.readers)
        if (state.rest.has(reader))
          after = std::max(after, (state.sinks & descendants_[at(reader)]).last());
      if (after < 0)
        state.steps.push_back({&choice, reached(state, choice)});
      else if (std::count(sinks.begin(), sinks.end(), after) == 0)
        sinks.push_back(after);
    }
  state.forget();
  const auto count = static_cast<std::int64_t>(state.steps.size());
  states_[at(from)] = std::move(state);
  return count;
}

int Search::reached(const State& from, const Choice& choice) {
  NodeSet rest = from.rest;
  rest.remove(choice.nodes);
  Layer& layer = layers_[at(rest.size())];
  const double spent = from.spent + choice.price;
  const auto [place, is_new] = layer.known.try_emplace(rest, static_cast<int>(states_.size()));
  if (is_new) {
    double left = from.alone;
    for (const int i : choice.nodes.members()) left -= alone(choices_[at(i)].front());
    NodeSet sinks = sinks_of(rest, from, choice);
    states_.push_back({std::move(rest), std::move(sinks), left, spent});
    layer.states.push_back(place->second);
  }
  State& state = states_[at(place->second)];
  state.spent = std::min(state.spent, spent);
  return place->second;
}

NodeSet Search::sinks_of(const NodeSet& rest, const State& before, const Choice& choice) const {
  NodeSet sinks = before.sinks;
  sinks.remove(choice.nodes);
  for (const int member : choice.nodes.members())
    for (const int p : graph_.producers[at(piece_.begin + member)])
      if (p >= piece_.begin && rest.has(p - piece_.begin) && !is_read(rest, p - piece_.begin))
        sinks.add(p - piece_.begin);
  return sinks;
}

bool Search::is_read(const NodeSet& rest, int i) const {
  const auto& readers = graph_.consumers[at(piece_.begin + i)];
  return std::any_of(readers.begin(), readers.end(),
                     [&](int c) { return c < piece_.end && rest.has(c - piece_.begin); });
}

void Search::settle(State& state) const {
  for (const Step& step : state.steps) {
    const double total = states_[at(step.to)].to_go + step.choice->price;
    if (total < state.to_go) state.to_go = total, state.best = step;
  }
}

}  // namespace tensor::fusion
