#include "src/kernels/cuda/driver/device.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "src/kernels/cuda/driver/driver.h"
#include "tensor/error.h"

namespace tensor::cuda {

// A process's use of the driver. It and its devices live as long as the process: tensors and
// executables that are global variables give back their memory after all else has ended.
struct Session {
  std::mutex mutex;
  const SharedLibrary* of_parent = nullptr;  // the library that is of no use here
  std::atomic<bool> is_started = false;
  std::atomic<const Driver*> driver = nullptr;
  std::vector<std::unique_ptr<Device>> devices;
};

namespace {

std::atomic<Session*>& present() {
  static std::atomic<Session*> session = new Session;
  return session;
}
Session& session() { return *present(); }

SharedLibrary open_driver(const SharedLibrary* of_parent) {
  constexpr std::string_view kWhat = "the CUDA driver";
  if (of_parent)
    return of_parent->copy(kWhat,
                           "this process is a child of one that uses the GPU already. Tune before "
                           "anything is compiled for it, or in a process of its own");
  return SharedLibrary(kWhat, {"libcuda.so.1", "libcuda.so"},
                       "install NVIDIA's driver; the CPU works without it");
}

}  // namespace

bool Device::is_started() { return session().is_started; }

// The old session stays as it is: another thread of the parent may have had its mutex.
void Device::start_anew() {
  const Session& before = session();
  if (!before.is_started) return;
  auto* const fresh = new Session;
  const Driver* const driver = before.driver;
  fresh->of_parent = driver ? &driver->library : before.of_parent;
  present() = fresh;
}

const Driver& Driver::get() {
  Session& mine = session();
  if (const Driver* known = mine.driver) return *known;
  const std::lock_guard lock(mine.mutex);
  if (const Driver* known = mine.driver) return *known;
  Driver opened{open_driver(mine.of_parent)};
  mine.is_started = true;
  if (const int result = opened.init(0); result != 0 && result != kNoDevice) {
    const char* text = "unknown error";
    opened.error_text(result, &text);
    fail("the CUDA driver", "does not start: ", text, " (", result, ")");
  }
  mine.driver = new Driver(std::move(opened));
  return *mine.driver;
}

bool is_sticky(int result) {
  // ECC error, illegal address, timeout, assertion, hardware stack, illegal instruction, misaligned
  // address, address space, program counter, launch failure.
  constexpr int kSticky[] = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719};
  return std::find(std::begin(kSticky), std::end(kSticky), result) != std::end(kSticky);
}

bool is_refusal(int result) {
  // Invalid image, no binary for the GPU, invalid PTX, PTX of a later version, invalid source, not
  // found.
  constexpr int kRefusals[] = {200, 209, 218, 222, 300, 500};
  return std::find(std::begin(kRefusals), std::end(kRefusals), result) != std::end(kRefusals);
}

/// The error after which a device is of no more use to this process.
struct Death {
  std::mutex mutex;
  std::string cause;
};

namespace {

constexpr const char* kInAChild =
    "this process is a child of one that uses the GPU, and cannot use it itself: call fork() "
    "before "
    "the first use, or start a program in the child";
constexpr const char* kLessMemory = "use smaller batches, or end other programs on this GPU";

std::string text_of(int result) {
  const char *name = "unknown", *text = "unknown error";
  driver().error_name(result, &name);
  driver().error_text(result, &text);
  return std::string(text) + " (" + name + ")";
}

bool is_waiting_asked_for() {
  const char* text = std::getenv("TENSOR_SYNC");
  const std::string word = text ? text : "";
  if (word != "" && word != "0" && word != "1")
    fail("TENSOR_SYNC", "got \"", word, "\", need 1 to wait for every kernel, or 0");
  return word == "1";
}

}  // namespace

int Device::count() {
  int count = 0;
  const int result = driver().device_count(&count);
  if (result == kNotInitialized) fail("the CUDA driver", kInAChild);
  if (result != 0 || count == 0)
    fail("the CUDA driver", "shows no GPU",
         result != 0 && result != kNoDevice ? ": " + text_of(result) : "",
         ": check CUDA_VISIBLE_DEVICES and nvidia-smi; the CPU works without it");
  return count;
}

Device& Device::get(int index) {
  const int count = Device::count();
  if (index < 0 || index >= count)
    fail("device", "got cuda:", index, ", this machine has ", count, " (0 to ", count - 1, ")");
  std::vector<std::unique_ptr<Device>>& devices = session().devices;
  const std::lock_guard lock(session().mutex);
  if (devices.empty()) devices.resize(static_cast<std::size_t>(count));
  auto& device = devices[static_cast<std::size_t>(index)];
  if (!device) device.reset(new Device(index));
  return *device;
}

Device::Device(int index)
    : session_(session()),
      waits_for_kernels_(is_waiting_asked_for()),
      death_(std::make_shared<Death>()) {
  info_.index = index;
  int handle = 0;
  const std::string what = "opening it";
  check(driver().device(&handle, index), what);
  const auto attribute = [&](DeviceAttribute which) {
    int value = 0;
    check(driver().device_attribute(&value, static_cast<int>(which), handle), what);
    return value;
  };
  char name[256] = {};
  check(driver().device_name(name, sizeof name - 1, handle), what);
  std::size_t memory = 0;
  check(driver().device_memory(&memory, handle), what);
  info_.name = name;
  info_.capability = 10 * attribute(DeviceAttribute::major) + attribute(DeviceAttribute::minor);
  info_.multiprocessors = attribute(DeviceAttribute::multiprocessors);
  info_.registers = attribute(DeviceAttribute::registers);
  info_.threads = attribute(DeviceAttribute::threads);
  info_.memory_bytes = static_cast<std::int64_t>(memory);
  info_.l2_bytes = attribute(DeviceAttribute::l2_bytes);
  info_.shared_bytes = attribute(DeviceAttribute::shared_bytes);
  info_.shared_block_bytes = attribute(DeviceAttribute::shared_block_bytes);
  info_.clock_ghz = attribute(DeviceAttribute::clock_khz) / 1e6;
  info_.memory_gbps = 2.0 * attribute(DeviceAttribute::memory_clock_khz) *
                      attribute(DeviceAttribute::memory_bits) / 8 / 1e6;
  const char* const most = std::getenv("TENSOR_MAX_CAPABILITY");
  info_ = info_.limited_to(most ? most : "");
  check(driver().retain_context(&context_, handle), what);
}

void Device::enter() {
  if (&session_ != &session())
    fail("cuda:" + std::to_string(info_.index), "is used by the parent of this process");
  {
    const std::lock_guard lock(death_->mutex);
    if (!death_->cause.empty())
      fail("cuda:" + std::to_string(info_.index), "is out of use in this process since ",
           death_->cause, ": start the process again");
  }
  check(driver().set_context(context_), "making it current");
}

bool Device::make_current() noexcept {
  if (&session_ != &session()) return false;
  driver().set_context(context_);
  return true;
}

void Device::check(int result, const std::string& what) {
  if (result == 0) return;
  if (is_sticky(result)) {
    const std::lock_guard lock(death_->mutex);
    if (death_->cause.empty()) death_->cause = what + ": " + text_of(result);
  }
  const std::string where = "cuda:" + std::to_string(info_.index);
  if (result == kOutOfMemory) fail(where, what, ": there is no memory left for it; ", kLessMemory);
  if (result == kNotInitialized) fail(where, what, ": ", kInAChild);
  internal_error(where, what, ": ", text_of(result));
}

std::int64_t Device::free_bytes() const {
  std::size_t free = 0, total = 0;
  const_cast<Device*>(this)->enter();
  const_cast<Device*>(this)->check(driver().memory_info(&free, &total), "asking for free memory");
  return static_cast<std::int64_t>(free);
}

// ---- Memory

Buffer::Buffer(Device& device, std::int64_t bytes) : device_(&device), bytes_(bytes) {
  device.enter();
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  const int result = driver().allocate(&address_, size);
  if (result == kOutOfMemory)
    fail("cuda:" + std::to_string(device.info().index), "cannot allocate ", bytes,
         " bytes: ", device.free_bytes(), " of ", device.info().memory_bytes, " are free; ",
         kLessMemory);
  device.check(result, "allocating " + std::to_string(bytes) + " bytes");
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_),
      address_(std::exchange(other.address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

// Destructors do not throw: after an error of the device freeing fails, and the process ends soon.
Buffer::~Buffer() {
  if (address_ == 0) return;
  if (device_->make_current()) driver().free(address_);
}

void Buffer::check_range(std::int64_t offset, std::size_t bytes) const {
  if (offset < 0 || offset > bytes_ || bytes > static_cast<std::size_t>(bytes_ - offset))
    internal_error("buffer", "a copy of ", bytes, " bytes at ", offset, " in a buffer of ", bytes_);
}

void Buffer::upload(std::span<const std::byte> from, std::int64_t offset) {
  check_range(offset, from.size());
  if (from.empty()) return;
  device_->enter();
  device_->check(driver().upload(address_ + static_cast<Address>(offset), from.data(), from.size()),
                 "copying to the device");
  wait_for_copies();
}

// Of memory that is not page-locked, what was copied may be on its way when the call returns, and
// copies on the device are. Streams do not wait for the one that they are in.
void Buffer::wait_for_copies() {
  device_->check(driver().synchronize(nullptr), "copying on the device");
}

void Buffer::download(std::span<std::byte> to, std::int64_t offset) const {
  check_range(offset, to.size());
  if (to.empty()) return;
  device_->enter();
  device_->check(driver().download(to.data(), address_ + static_cast<Address>(offset), to.size()),
                 "copying from the device");
}

void Buffer::fill(unsigned char byte) {
  if (bytes_ == 0) return;
  device_->enter();
  device_->check(driver().fill(address_, byte, static_cast<std::size_t>(bytes_)),
                 "setting memory of the device");
  wait_for_copies();
}

void Buffer::repeat(std::int64_t offset, std::size_t bytes, std::span<const std::int64_t> places) {
  check_range(offset, bytes);
  if (bytes == 0 || places.empty()) return;
  device_->enter();
  const Address from = address_ + static_cast<Address>(offset);
  for (const std::int64_t place : places) {
    check_range(place, bytes);
    device_->check(driver().copy(address_ + static_cast<Address>(place), from, bytes),
                   "copying on the device");
  }
  wait_for_copies();
}

// ---- Streams and events

void Launched::add(const std::string& kernel) {
  last_ = kernel;
  if (!place_.empty()) last_.append(" (").append(place_).append(")");
  if (count_++ == 0) first_ = last_, differ_ = false;
  differ_ |= last_ != first_;
}

void Launched::add(const Launched& graph) {
  if (graph.count_ == 0) return;
  if (count_ == 0) first_ = graph.first_, differ_ = false;
  differ_ |= graph.differ_ || graph.first_ != first_;
  last_ = graph.last_;
  count_ += graph.count_;
}

std::string Launched::text() const {
  if (!differ_) return "running " + first_;
  return "running one of " + std::to_string(count_) + " kernels, from " + first_ + " to " + last_ +
         "; set TENSOR_SYNC=1 to learn which";
}

Stream::Stream(Device& device, bool is_recorded) : device_(&device), is_recorded_(is_recorded) {
  device.enter();
  device.check(driver().create_stream(&handle_, kStreamOfItsOwn), "making a stream");
}
Stream::Stream(Device& device, StreamHandle* foreign)
    : device_(&device), is_mine_(false), handle_(foreign) {}
Stream::~Stream() {
  if (is_mine_ && device_->make_current()) driver().destroy_stream(handle_);
}

void Stream::synchronize() {
  device_->enter();
  check(driver().synchronize(handle_), "waiting for it");
  launched_.clear();
}

void Stream::check(int result, const std::string& what) {
  if (result == 0) return;
  device_->check(result, is_sticky(result) && !launched_.is_empty() ? launched_.text() : what);
}

Event::Event(Device& device) : device_(&device) {
  device.enter();
  device.check(driver().create_event(&handle_, 0), "making an event");
}
Event::~Event() {
  if (device_->make_current()) driver().destroy_event(handle_);
}

void Event::record(Stream& stream) {
  device_->enter();
  stream.check(driver().record(handle_, stream.handle()), "recording an event");
}

bool Event::is_reached() const {
  device_->enter();
  const int result = driver().query_event(handle_);
  if (result == kNotReady) return false;
  device_->check(result, "asking for an event");
  return true;
}

void Event::wait() const {
  device_->enter();
  device_->check(driver().wait_for_event(handle_), "waiting for an event");
}

double Event::microseconds_since(const Event& earlier) const {
  device_->enter();
  float milliseconds = 0;
  device_->check(driver().elapsed(&milliseconds, earlier.handle_, handle_), "reading an event");
  return 1e3 * milliseconds;
}

// ---- Kernels

Kernel::Kernel(Device& device, const Cubin& cubin, const std::string& name,
               const std::function<Cubin()>& renewed)
    : device_(&device), name_(name) {
  device.enter();
  int result = load(cubin);
  if (is_refusal(result) && renewed) result = load(renewed());
  device.check(result, name);
}
Kernel::~Kernel() {
  if (device_->make_current()) driver().unload_module(module_);
}

int Kernel::load(const Cubin& cubin) {
  int result = driver().load_module(&module_, cubin.code.data());
  if (result != 0) return result;
  result = driver().function_of(&function_, module_, name_.c_str());
  if (result != 0) driver().unload_module(module_);
  return result;
}

int Kernel::registers() const { return attribute(FunctionAttribute::registers); }
int Kernel::local_bytes() const { return attribute(FunctionAttribute::local_bytes); }

int Kernel::attribute(FunctionAttribute which) const {
  device_->enter();
  int value = 0;
  device_->check(driver().function_attribute(&value, static_cast<int>(which), function_), name_);
  return value;
}

void Kernel::ask_for_shared(unsigned bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes <= most_shared_) return;
  device_->check(driver().set_function_attribute(
                     function_, static_cast<int>(FunctionAttribute::dynamic_shared_bytes),
                     static_cast<int>(bytes)),
                 name_);
  most_shared_ = bytes;
}

void Kernel::run(Stream& stream, const Launch& launch, void** arguments) {
  device_->enter();
  ask_for_shared(launch.shared_bytes);
  LaunchAttribute attributes[2];
  unsigned count = 0;
  if (launch.overlaps_previous) {
    attributes[count] = {kOverlapsPrevious, {}, {}};
    attributes[count++].value.flag = 1;
  }
  if (launch.cluster > 1) {
    attributes[count] = {kCluster, {}, {}};
    attributes[count++].value.grid = {launch.cluster, 1, 1};
  }
  const LaunchConfig config{launch.grid.x,  launch.grid.y,  launch.grid.z,       launch.block.x,
                            launch.block.y, launch.block.z, launch.shared_bytes, stream.handle(),
                            attributes,     count};
  stream.launched().add(name_);
  stream.check(driver().launch(&config, function_, arguments, nullptr), name_);
  if (device_->waits_for_kernels() && !stream.is_recorded()) stream.synchronize();
}

}  // namespace tensor::cuda
