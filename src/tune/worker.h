// Worker: a child process that works on items in the parent's stead, so that an item that crashes
// or never ends costs one item and not the program.
#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tensor {

/// How a child tells what it does with the items of a batch, by their number in it. Any thread may
/// use it.
class Channel {
 public:
  explicit Channel(int descriptor) : descriptor_(descriptor) {}
  /// From now on a crash, or the end of the time limit, is blamed on this item.
  void begin(std::size_t item);
  /// It waits for its next step.
  void pause(std::size_t item);
  void done(std::size_t item, std::string_view result);
  void failed(std::size_t item, std::string_view why);

  /// Ends this process, which is of no more use: what is not done goes to a fresh one, and nothing
  /// is blamed for it.
  [[noreturn]] void give_up();

  int descriptor() const { return descriptor_; }

 private:
  void send(char kind, std::size_t item, std::string_view bytes);
  friend class Worker;
  std::mutex mutex_;
  int descriptor_;
};

/// What became of an item. Both empty: the batch was stopped before.
struct Answer {
  std::string result;
  std::string error;  // "crashed: Segmentation fault", "took longer than 20 s", or what it threw
  bool is_given() const { return !result.empty() || !error.empty(); }
};

class Worker {
 public:
  /// Works on a batch, in the child: tells the channel of every item, as often and in whatever
  /// order it likes. What it throws is the answer to all items that have none.
  using Work = std::function<void(const std::vector<std::string>& items, Channel& channel)>;
  struct Limits {
    double item_seconds = 20;  // of one step of an item
    double idle_seconds = 60;  // without any message while no item is begun: a GPU's start, say
  };
  /// Looked at several times a second.
  using Stop = std::function<bool()>;

  Worker(Work work, Limits limits, Stop stop = nullptr);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  /// Told of an item's answer as soon as it is there: again when there is another.
  using Hear = std::function<void(std::size_t item, const Answer&)>;

  /// The items' answers. The child is started when it is first needed, with all that this process
  /// knows at that moment, and again after it died; items that were under way together when it did
  /// are tried once more, each alone. Results are not empty. What `hear` throws ends the child and
  /// goes to the caller.
  std::vector<Answer> run(const std::vector<std::string>& items, const Hear& hear = nullptr);

  /// Ends the child: the next batch has a new one, which knows what this process knows by then.
  void end();
  int starts() const { return starts_; }  // how many children there were

 private:
  struct Batch;
  void start();
  std::string kill_and_describe(const std::string& reason);
  void serve(int descriptor) const;
  std::string attempt(Batch& batch);
  std::string listen(Batch& batch);

  Work work_;
  Limits limits_;
  Stop stop_;
  pid_t child_ = -1;
  int descriptor_ = -1;
  int starts_ = 0;
};

}  // namespace tensor
