// Recurrent layers, unrolled: their steps are as many as the sequence is long.
#include <algorithm>

#include "src/onnx/operators.h"

namespace tensor::onnx {
namespace {

// What one direction of a layer knows. Gates lie one after the other in the rows of the weights.
struct Direction {
  Tensor inputs;       // [time, batch, gates * hidden]: with the weights and biases of X
  Tensor recurrence;   // [hidden, gates * hidden]
  Tensor bias;         // [gates * hidden], of the state; undefined where it is in `inputs`
  Tensor state, cell;  // [batch, hidden]
  Tensor peepholes;    // [3 * hidden] or undefined
  std::int64_t hidden = 0;
  bool resets_last = false;  // GRU's linear_before_reset

  Tensor gate(const Tensor& all, std::int64_t i) const {
    return sliced(all, all.rank() - 1, i * hidden, hidden);
  }
};

using Step = void (*)(Direction&, const Tensor& x);

void rnn_step(Direction& d, const Tensor& x) { d.state = tanh(x + matmul(d.state, d.recurrence)); }

void lstm_step(Direction& d, const Tensor& x) {
  const Tensor all = x + matmul(d.state, d.recurrence);
  const auto gate = [&](std::int64_t i, std::int64_t hole, const Tensor& cell) {
    const Tensor sum = d.gate(all, i);
    return sigmoid(d.peepholes.defined() ? sum + d.gate(d.peepholes, hole) * cell : sum);
  };
  const Tensor in = gate(0, 0, d.cell), forget = gate(2, 2, d.cell);
  d.cell = forget * d.cell + in * tanh(d.gate(all, 3));
  d.state = gate(1, 1, d.cell) * tanh(d.cell);
}

void gru_step(Direction& d, const Tensor& x) {
  const Tensor both = sliced(d.recurrence, 1, 0, 2 * d.hidden), last = d.gate(d.recurrence, 2);
  Tensor sums = matmul(d.state, both);
  if (d.bias.defined()) sums = sums + sliced(d.bias, 0, 0, 2 * d.hidden);
  const Tensor update = sigmoid(d.gate(x, 0) + d.gate(sums, 0));
  const Tensor reset = sigmoid(d.gate(x, 1) + d.gate(sums, 1));
  const Tensor bias = d.bias.defined() ? d.gate(d.bias, 2) : Tensor();
  const auto with_bias = [&](const Tensor& y) { return bias.defined() ? y + bias : y; };
  const Tensor old = d.resets_last ? reset * with_bias(matmul(d.state, last))
                                   : with_bias(matmul(reset * d.state, last));
  const Tensor fresh = tanh(d.gate(x, 2) + old);
  d.state = (1 - update) * fresh + update * d.state;
}

// One of the directions; the state of `hidden` numbers begins as input 5 (and 6) says.
Direction direction_of(const Call& c, const Tensor& x, std::int64_t i, std::int64_t gates) {
  const auto of = [&](int input) {
    const Tensor all = c.optional(input);
    return all.defined() ? squeeze(sliced(all, 0, i, 1), 0) : all;
  };
  const auto start = [&](int input) {
    const bool is_batch_first = c.integer("layout", 0) != 0;
    if (c.has(input))
      return squeeze(sliced(c[input], is_batch_first ? 1 : 0, i, 1), is_batch_first ? 1 : 0);
    return zeros({x.shape(1), c[2].shape(2)}, x.dtype()).to(x.device());
  };
  Direction d;
  d.hidden = c[2].shape(2);
  if (c[1].shape(1) != gates * d.hidden || c[2].shape(1) != gates * d.hidden)
    fail("recurrence", "got weights of the shapes ", c[1].shape(), " and ", c[2].shape(), ", need ",
         gates * d.hidden, " rows");
  d.recurrence = of(2).transpose();
  d.inputs = matmul(x, of(1).transpose());
  if (c.has(3)) {
    const std::int64_t rows = gates * d.hidden;
    d.inputs = d.inputs + sliced(of(3), 0, 0, rows);
    d.bias = sliced(of(3), 0, rows, rows);
  }
  d.state = start(5);
  return d;
}

struct Sequences {
  Ints lengths;  // of each in the batch; none where all are whole

  // Where step t is within its sequence: [batch, 1].
  Tensor within(std::int64_t t) const {
    Tensor mask = zeros({static_cast<std::int64_t>(lengths.size()), 1}, boolean);
    for (std::size_t i = 0; i < lengths.size(); ++i)
      mask.at<bool>(static_cast<std::int64_t>(i), 0) = t < lengths[i];
    return mask;
  }
};

// The state after every step, [time, batch, hidden], zeros behind the end of a sequence.
Tensor run_direction(Direction& d, Step step, bool is_reverse, const Sequences& sequences) {
  const std::int64_t steps = d.inputs.shape(0);
  std::vector<Tensor> states(static_cast<std::size_t>(steps));
  for (std::int64_t k = 0; k < steps; ++k) {
    const std::int64_t t = is_reverse ? steps - 1 - k : k;
    const Tensor state = d.state, cell = d.cell;
    step(d, squeeze(sliced(d.inputs, 0, t, 1), 0));
    Tensor seen = d.state;
    if (!sequences.lengths.empty()) {
      const Tensor mask = sequences.within(t).to(d.state.device());
      seen = where(mask, d.state, 0);
      d.state = where(mask, d.state, state);
      if (cell.defined()) d.cell = where(mask, d.cell, cell);
    }
    states[static_cast<std::size_t>(t)] = seen;
  }
  return stack(states);
}

Sequences sequences_of(const Call& c, std::int64_t steps, bool has_reverse) {
  Sequences result;
  if (c.has(4)) result.lengths = c.ints(4);
  if (std::ranges::all_of(result.lengths, [&](auto n) { return n == steps; })) return {};
  if (has_reverse) fail("recurrence", "got sequences of several lengths, which run forward only");
  return result;
}

Results recurrent(const Call& c, Step step, std::int64_t gates, bool has_cell) {
  const bool is_batch_first = c.integer("layout", 0) != 0;
  const Tensor x = is_batch_first ? c[0].swapaxes(0, 1) : c[0];
  const std::string way = c.text("direction", "forward");
  const std::int64_t count = way == "bidirectional" ? 2 : 1;
  if (x.rank() != 3 || c[1].rank() != 3 || c[2].rank() != 3 || c[1].shape(0) != count ||
      c[2].shape(0) != count || x.shape(0) < 1)
    fail("recurrence", "got the shapes ", c[0].shape(), ", ", c[1].shape(), " and ", c[2].shape(),
         " for the direction ", way);
  const Sequences sequences = sequences_of(c, x.shape(0), way != "forward");
  std::vector<Tensor> all, states, cells;
  for (std::int64_t i = 0; i < count; ++i) {
    Direction d = direction_of(c, x, i, gates);
    d.resets_last = c.integer("linear_before_reset", 0) != 0;
    if (has_cell) d.cell = zeros_like(d.state);
    if (has_cell && c.has(6))
      d.cell = squeeze(sliced(c[6], is_batch_first ? 1 : 0, i, 1), is_batch_first ? 1 : 0);
    if (has_cell && c.has(7)) d.peepholes = squeeze(sliced(c[7], 0, i, 1), 0);
    // Only GRU has a place for the state's bias of its own.
    if (gates != 3 && d.bias.defined()) d.inputs = d.inputs + d.bias;
    all.push_back(run_direction(d, step, way == "reverse" || i == 1, sequences));
    states.push_back(d.state);
    if (has_cell) cells.push_back(d.cell);
  }
  // [time, directions, batch, hidden], or batch, time, directions.
  const int at = is_batch_first ? 1 : 0;
  Tensor whole = stack(all, 1);
  if (is_batch_first) whole = whole.transpose({2, 0, 1, 3});
  return {whole, stack(states, at), has_cell ? stack(cells, at) : Tensor()};
}

Results rnn(const Call& c) { return recurrent(c, rnn_step, 1, false); }
Results lstm(const Call& c) { return recurrent(c, lstm_step, 4, true); }
Results gru(const Call& c) { return recurrent(c, gru_step, 3, false); }

// Activations other than the usual ones.
std::string refuse_recurrent(const Node& n) {
  const Attribute* given = n.find("activations");
  if (given)
    for (std::size_t i = 0; i < given->texts.size(); ++i) {
      const std::size_t each = n.type == "LSTM" ? 3 : n.type == "GRU" ? 2 : 1;
      const std::string_view usual = n.type == "RNN" || i % each > 0 ? "Tanh" : "Sigmoid";
      if (given->texts[i] != usual) return "the activation " + given->texts[i];
    }
  if (std::string why = refuse_unless(n, "input_forget", 0); !why.empty()) return why;
  return refuse_unless(n, "direction", {"forward", "reverse", "bidirectional"});
}

constexpr std::string_view kRecurrent =
    "hidden_size:i direction:s layout:i activations:S input_forget:i linear_before_reset:i";

constexpr Operator kRecurrentRows[] = {
    {"RNN", 7, 3, 6, 2, kRecurrent, rnn, refuse_recurrent},
    {"LSTM", 7, 3, 8, 3, kRecurrent, lstm, refuse_recurrent},
    {"GRU", 7, 3, 6, 2, kRecurrent, gru, refuse_recurrent},
};

}  // namespace

std::span<const Operator> recurrent_operators() { return kRecurrentRows; }

}  // namespace tensor::onnx
