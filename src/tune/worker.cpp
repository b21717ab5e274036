#include "src/tune/worker.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "src/core/checksum.h"
#include "src/kernels/cuda/driver/device.h"
#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// ---- Messages: a head, then `bytes` of text.

enum Kind : char {
  kBatch = 'B',
  kBegin = 'b',
  kPause = 'p',
  kDone = 'd',
  kFailed = 'f',
  kEnd = 'e',
  kGiveUp = 'g'
};

struct Head {
  std::uint32_t magic = 0x74756e65;
  char kind = 0;
  std::uint64_t item = 0, bytes = 0;
  std::uint64_t checksum = 0;  // of all the others and the text
};
constexpr std::uint64_t kMostBytes = 64 << 20;

std::uint64_t checksum(const Head& head, std::string_view text) {
  std::uint64_t hash = mixed(mixed(kHashStart, head.magic), static_cast<unsigned char>(head.kind));
  hash = mixed(mixed(hash, head.item), head.bytes);
  return hash_of(text, hash);
}

// False when the other side is gone.
bool write_all(int descriptor, const void* data, std::size_t bytes) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t count = ::send(descriptor, at, bytes, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += count, bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

bool write_message(int descriptor, char kind, std::uint64_t item, std::string_view text) {
  Head head;
  head.kind = kind, head.item = item, head.bytes = text.size();
  head.checksum = checksum(head, text);
  return write_all(descriptor, &head, sizeof head) &&
         write_all(descriptor, text.data(), text.size());
}

struct Message {
  Head head;
  std::string text;
};

// Takes one whole message off the front of `bytes`, if there is one; throws on anything else.
std::optional<Message> take_message(std::string& bytes) {
  Message message;
  if (bytes.size() < sizeof message.head) return std::nullopt;
  std::memcpy(&message.head, bytes.data(), sizeof message.head);
  if (message.head.magic != Head().magic || message.head.bytes > kMostBytes)
    throw UserError("sent something that is no message");
  if (bytes.size() - sizeof message.head < message.head.bytes) return std::nullopt;
  message.text = bytes.substr(sizeof message.head, message.head.bytes);
  if (checksum(message.head, message.text) != message.head.checksum)
    throw UserError("sent a damaged message");
  bytes.erase(0, sizeof message.head + message.head.bytes);
  return message;
}

// False at the end of the stream.
bool read_some(int descriptor, std::string& bytes) {
  char part[1 << 16];
  ssize_t count = 0;
  do count = ::recv(descriptor, part, sizeof part, 0);
  while (count < 0 && errno == EINTR);
  if (count > 0) bytes.append(part, static_cast<std::size_t>(count));
  return count > 0;
}

std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) {
    const std::uint64_t size = item.size();
    text.append(reinterpret_cast<const char*>(&size), sizeof size);
    text += item;
  }
  return text;
}

std::vector<std::string> parted(std::string_view text) {
  std::vector<std::string> items;
  for (std::uint64_t size = 0; text.size() >= sizeof size;) {
    std::memcpy(&size, text.data(), sizeof size);
    items.emplace_back(text.substr(sizeof size, size));
    text.remove_prefix(sizeof size + items.back().size());
  }
  return items;
}

std::string text_of_status(int status) {
  TextWriter text;
  if (WIFSIGNALED(status))
    text << "crashed: " << strsignal(WTERMSIG(status));
  else
    text << "ended its process with exit code " << WEXITSTATUS(status);
  return text.str();
}

}  // namespace

// ---- The child's side

void Channel::send(char kind, std::size_t item, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (!write_message(descriptor_, kind, item, bytes)) _exit(0);  // nobody listens any more
}
void Channel::begin(std::size_t item) { send(kBegin, item, {}); }
void Channel::pause(std::size_t item) { send(kPause, item, {}); }
void Channel::done(std::size_t item, std::string_view result) { send(kDone, item, result); }
void Channel::failed(std::size_t item, std::string_view why) {
  send(kFailed, item, why.empty() ? "failed" : why);
}

void Channel::give_up() {
  send(kGiveUp, 0, {});
  _exit(0);
}

void Worker::serve(int descriptor) const {
  Channel channel(descriptor);
  std::string bytes;
  try {
    while (true) {
      auto message = take_message(bytes);
      if (!message) {
        if (!read_some(descriptor, bytes)) return;
        continue;
      }
      std::string error;
      try {
        work_(parted(message->text), channel);
      } catch (const std::exception& thrown) {
        error = *thrown.what() ? thrown.what() : "threw an exception";
      } catch (...) {
        error = "threw something that is no std::exception";
      }
      channel.send(kEnd, 0, error);
    }
  } catch (const std::exception&) {
    // The parent sent nonsense, and sees that this process is gone.
  }
}

// ---- The parent's side

// Items of one attempt and what is known of them.
struct Worker::Batch {
  const std::vector<std::string>& all;
  std::vector<Answer>& answers;
  const Hear& hear;
  std::vector<std::size_t> items;                            // numbers in `all`
  std::vector<std::optional<Clock::time_point>> begun = {};  // of items
  std::vector<std::size_t> blamed = {};                      // why it ended too soon
  bool is_stopped = false, has_given_up = false, has_progress = false;

  std::vector<std::size_t> left() const {
    std::vector<std::size_t> result;
    for (const std::size_t i : items)
      if (!answers[i].is_given()) result.push_back(i);
    return result;
  }
  void blame_begun(double for_seconds) {
    for (std::size_t i = 0; i < items.size(); ++i)
      if (begun[i] && seconds_since(*begun[i]) >= for_seconds) blamed.push_back(items[i]);
  }
};

Worker::Worker(Work work, Limits limits, Stop stop)
    : work_(std::move(work)), limits_(limits), stop_(std::move(stop)) {}

Worker::~Worker() { end(); }

void Worker::start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail("tune", "cannot talk to a child process: ", std::strerror(errno));
  const pid_t parent = getpid();
  child_ = fork();
  if (child_ < 0) {
    close(ends[0]), close(ends[1]);
    fail("tune", "cannot start a child process: ", std::strerror(errno));
  }
  if (child_ == 0) {
    close(ends[0]);
    std::signal(SIGINT, SIG_IGN);  // the terminal sends it to both, and the parent decides
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM})
      std::signal(fault, SIG_DFL);  // not the parent's handlers
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    cuda::Device::start_anew();
    // It works in a thread of its own: in this one oneDNN has lost its threads by fork(), and would
    // run by way of another one, which takes time.
    std::thread([&] { serve(ends[1]); }).join();
    _exit(0);
  }
  close(ends[1]);
  descriptor_ = ends[0];
  ++starts_;
}

void Worker::end() {
  if (child_ < 0) return;
  close(descriptor_);
  descriptor_ = -1;
  const Clock::time_point begin = Clock::now();
  while (waitpid(child_, nullptr, WNOHANG) == 0) {
    constexpr double kPatience = 2;
    if (seconds_since(begin) > kPatience) kill(child_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  child_ = -1;
}

std::string Worker::kill_and_describe(const std::string& reason) {
  close(descriptor_);
  descriptor_ = -1;
  int status = 0;
  if (!reason.empty()) kill(child_, SIGKILL);
  while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
  return reason.empty() ? text_of_status(status) : reason;
}

// Takes what the child says until the batch ends: "" then, otherwise why it must be killed or, with
// nobody blamed and "gone", that it is no more.
std::string Worker::listen(Batch& batch) {
  std::string bytes;
  Clock::time_point heard = Clock::now();
  while (true) {
    while (true) {
      std::optional<Message> message;
      try {
        message = take_message(bytes);
      } catch (const UserError& nonsense) {
        return nonsense.what();
      }
      if (!message) break;
      heard = Clock::now();
      const auto& [head, text] = *message;
      if (head.kind == kEnd) {
        for (const std::size_t i : batch.left())
          batch.answers[i].error = text.empty() ? "got no answer" : text;
        return {};
      }
      if (head.kind == kGiveUp) {
        batch.has_given_up = batch.has_progress = true;
        return "gave up";
      }
      if (head.item >= batch.items.size()) return "sent something that is no message";
      batch.begun[head.item].reset();
      Answer& answer = batch.answers[batch.items[head.item]];
      if (head.kind == kBegin) batch.begun[head.item] = heard;
      if (head.kind == kDone) answer.result = text;
      if (head.kind == kFailed) answer.error = text;
      if (batch.hear && (head.kind == kDone || head.kind == kFailed))
        batch.hear(batch.items[head.item], answer);
      batch.has_progress |= answer.is_given();
    }
    if (stop_ && stop_()) {
      batch.is_stopped = true;
      return "was stopped";
    }
    batch.blame_begun(limits_.item_seconds);
    TextWriter late;
    if (!batch.blamed.empty()) late << "took longer than " << limits_.item_seconds << " s";
    const bool is_idle = std::none_of(batch.begun.begin(), batch.begun.end(),
                                      [](const auto& at) { return at.has_value(); });
    if (is_idle && seconds_since(heard) >= limits_.idle_seconds)
      late << "did nothing for " << limits_.idle_seconds << " s";
    if (!late.str().empty()) return late.str();
    constexpr int kGlance = 50;  // ms
    pollfd ready{descriptor_, POLLIN, 0};
    if (poll(&ready, 1, kGlance) > 0 && !read_some(descriptor_, bytes)) return "gone";
  }
}

// Runs a batch; why the child ended in the middle of it, "" if it did not.
std::string Worker::attempt(Batch& batch) {
  if (child_ < 0) start();
  batch.begun.assign(batch.items.size(), std::nullopt);
  std::vector<std::string> items;
  for (const std::size_t i : batch.items) items.push_back(batch.all[i]);
  std::string reason = "gone";
  if (write_message(descriptor_, kBatch, 0, joined(items))) try {
      reason = listen(batch);
    } catch (...) {  // of whoever hears the answers, and no item's fault
      kill_and_describe("is heard no more");
      throw;
    }
  if (reason.empty()) return reason;
  if (batch.blamed.empty() && !batch.has_given_up) batch.blame_begun(0);
  return kill_and_describe(reason == "gone" ? "" : reason);
}

std::vector<Answer> Worker::run(const std::vector<std::string>& items, const Hear& hear) {
  std::vector<Answer> answers(items.size());
  std::deque<std::vector<std::size_t>> waiting(1);
  for (std::size_t i = 0; i < items.size(); ++i) waiting[0].push_back(i);
  bool had_progress = true;
  while (!waiting.empty()) {
    Batch batch{items, answers, hear, waiting.front()};
    waiting.pop_front();
    if (batch.items.empty()) continue;
    const std::string reason = attempt(batch);
    if (batch.is_stopped) break;
    std::vector<std::size_t> left = batch.left();
    if (batch.blamed.size() == 1) answers[batch.blamed[0]].error = reason;
    // A child that dies twice before it begins anything will do so again.
    const bool is_hopeless = batch.blamed.empty() && !batch.has_progress && !had_progress;
    had_progress = batch.has_progress || !batch.blamed.empty();
    if (is_hopeless)
      for (const std::size_t i : left) answers[i].error = reason;
    std::erase_if(left, [&](std::size_t i) {
      return is_hopeless || std::count(batch.blamed.begin(), batch.blamed.end(), i) > 0;
    });
    if (!left.empty()) waiting.push_front(left);
    if (batch.blamed.size() > 1)
      for (const std::size_t i : batch.blamed) waiting.push_front({i});
  }
  return answers;
}

}  // namespace tensor
