#include "models/service/join.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "tensor/creation.h"
#include "tensor/index.h"
#include "tensor/ops.h"

namespace models::service {

using tensor::Tensor;
using tensor::nn::StateDict;

namespace {

/// Names, types and places of a call, without how many rows it has, as a text.
std::string kind_of(const StateDict& call) {
  std::vector<std::string> names;
  std::vector<tensor::TensorType> types;
  for (const auto& [name, value] : call) {
    names.push_back(value.device().is_cuda() ? name + " on the GPU" : name);
    types.push_back(value.type());
    types.back().shape[0] = -1;
  }
  return describe_inputs(names, types);
}

std::int64_t rows_of(const StateDict& call) { return call.begin()->second.shape(0); }

/// Rows [begin, end) of every tensor.
StateDict rows_between(const StateDict& all, std::int64_t begin, std::int64_t end) {
  StateDict part;
  for (const auto& [name, value] : all)
    part.emplace(name,
                 begin == 0 && end == value.shape(0) ? value : value(tensor::slice(begin, end)));
  return part;
}

/// One behind the other, and zeros up to so many rows.
StateDict stacked(const std::vector<StateDict>& parts, std::int64_t rows) {
  StateDict whole;
  for (const auto& [name, first] : parts.front()) {
    std::vector<Tensor> pieces;
    std::int64_t missing = rows;
    for (const StateDict& part : parts) {
      pieces.push_back(part.at(name));
      missing -= pieces.back().shape(0);
    }
    if (missing > 0) {
      tensor::Shape shape = first.shape();
      shape[0] = missing;
      pieces.push_back(tensor::zeros(shape, first.dtype()).to(first.device()));
    }
    whole.emplace(name, pieces.size() == 1 ? first : tensor::concatenate(pieces));
  }
  return whole;
}

/// Calls of one kind, as one list of rows.
class Group {
 public:
  void add(const StateDict* call, Outcome* outcome) {
    calls_.push_back({call, outcome, rows_of(*call), {}});
    rows_ += calls_.back().rows;
  }

  void run(const Batches& batches, const Forward& forward) {
    for (std::int64_t done = 0; done < rows_;) {
      const std::int64_t size = batches.next(rows_ - done);
      const std::int64_t end = std::min(done + size, rows_);
      run_rows(done, end, size, forward);
      done = end;
    }
    for (Call& call : calls_)
      if (!call.outcome->error) call.outcome->outputs = stacked(call.answers, call.rows);
  }

 private:
  struct Call {
    const StateDict* inputs;
    Outcome* outcome;
    std::int64_t rows;
    std::vector<StateDict> answers;
  };

  /// Calls `visit(call, begin, end)` with the part of each call in [begin, end) of all rows.
  template <class Visit>
  void each_part(std::int64_t begin, std::int64_t end, const Visit& visit) {
    std::int64_t at = 0;
    for (Call& call : calls_) {
      const std::int64_t from = std::max(begin, at), to = std::min(end, at + call.rows);
      if (from < to) visit(call, from - at, to - at);
      at += call.rows;
    }
  }

  void run_rows(std::int64_t begin, std::int64_t end, std::int64_t size, const Forward& forward) {
    try {
      std::vector<StateDict> parts;
      each_part(begin, end, [&](Call& call, std::int64_t from, std::int64_t to) {
        parts.push_back(rows_between(*call.inputs, from, to));
      });
      const StateDict outputs = forward(stacked(parts, size));
      std::int64_t at = 0;
      each_part(begin, end, [&](Call& call, std::int64_t from, std::int64_t to) {
        call.answers.push_back(rows_between(outputs, at, at + to - from));
        at += to - from;
      });
    } catch (...) {
      each_part(begin, end, [](Call& call, std::int64_t, std::int64_t) {
        call.outcome->error = std::current_exception();
      });
    }
  }

  std::vector<Call> calls_;
  std::int64_t rows_ = 0;
};

}  // namespace

Batches Batches::powers(std::int64_t most, bool fill) {
  Batches result;
  result.fill = fill;
  for (std::int64_t size = 2; size <= most; size *= 2) result.sizes.push_back(size);
  return result;
}

std::int64_t Batches::next(std::int64_t waiting) const {
  const auto enough = std::ranges::lower_bound(sizes, waiting);
  if (enough == sizes.end()) return sizes.back();
  if (fill || *enough == waiting || enough == sizes.begin()) return *enough;
  return *std::prev(enough);
}

std::vector<Outcome> run_joined(const std::vector<const StateDict*>& calls, const Batches& batches,
                                const Forward& run) {
  std::vector<Outcome> outcomes(calls.size());
  std::map<std::string, Group> groups;
  for (std::size_t i = 0; i < calls.size(); ++i)
    groups[kind_of(*calls[i])].add(calls[i], &outcomes[i]);
  for (auto& [kind, group] : groups) group.run(batches, run);
  return outcomes;
}

StateDict Meeting::ask(const StateDict& inputs) {
  Question question{&inputs};
  std::unique_lock lock(mutex_);
  waiting_.push_back(&question);
  if (waiting_.size() == members_) all_wait_.notify_one();
  answered_.wait(lock, [&] { return question.is_answered; });
  if (question.outcome.error) std::rethrow_exception(question.outcome.error);
  return std::move(question.outcome.outputs);
}

void Meeting::leave() {
  const std::lock_guard lock(mutex_);
  --members_;
  if (waiting_.size() == members_) all_wait_.notify_one();
}

void Meeting::serve(const Batches& batches, const Forward& run) {
  std::unique_lock lock(mutex_);
  for (;;) {
    all_wait_.wait(lock, [&] { return waiting_.size() == members_; });
    if (members_ == 0) return;
    const std::vector<Question*> questions = std::exchange(waiting_, {});
    // All members wait for answers: nobody needs the lock, and nobody can leave.
    std::vector<const StateDict*> calls;
    for (const Question* question : questions) calls.push_back(question->inputs);
    std::vector<Outcome> outcomes(questions.size());
    try {
      outcomes = run_joined(calls, batches, run);
    } catch (...) {  // those who wait would wait for ever
      for (Outcome& outcome : outcomes) outcome.error = std::current_exception();
    }
    for (std::size_t i = 0; i < questions.size(); ++i) {
      questions[i]->outcome = std::move(outcomes[i]);
      questions[i]->is_answered = true;
    }
    answered_.notify_all();
  }
}

}  // namespace models::service
