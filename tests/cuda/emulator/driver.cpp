#include "tests/cuda/emulator/driver.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "src/kernels/cuda/driver.h"
#include "src/kernels/cuda/family.h"
#include "tests/cuda/emulator/engine.h"
#include "tests/cuda/emulator/nvrtc.h"

namespace tensor::cuda {

// The driver's objects, which the library only knows as pointers.
struct Context {
  struct Block {
    std::size_t bytes = 0;
    bool is_uploaded = false;  // last written by a copy, so that no kernel need be waited for
  };
  DeviceInfo info;
  std::byte *begin = nullptr, *next = nullptr, *end = nullptr;  // of the addresses
  std::int64_t limit = 0, taken = 0;
  std::map<Address, Block> blocks;

  Block* holding(Address address, std::size_t bytes) {
    auto after = blocks.upper_bound(address);
    if (after == blocks.begin()) return nullptr;
    auto& [first, block] = *--after;
    return address + bytes <= first + block.bytes ? &block : nullptr;
  }
};
struct GraphHandle {
  std::vector<std::function<void()>> work;
};
struct GraphExecHandle : GraphHandle {};
struct StreamHandle {
  Context* device = nullptr;
  std::deque<std::function<void()>> work;
  std::unique_ptr<GraphHandle> capture;
};
struct EventHandle {
  bool is_reached = false;
};
struct FunctionHandle {
  const KernelSource* source = nullptr;
  std::string entry;
  int capability = 0;
};
struct ModuleHandle {
  KernelSource source;
  int capability = 0;
  std::deque<FunctionHandle> functions;
};

}  // namespace tensor::cuda

namespace tensor::emulator {
namespace {

using cuda::Address;

constexpr int kInvalid = 1, kNotFound = 500, kFailed = 719, kNoContext = 201;
constexpr std::size_t kPage = 4096;

struct State {
  std::recursive_mutex mutex;
  std::deque<cuda::Context> devices;
  std::map<const std::byte*, std::size_t> pinned;
  std::deque<cuda::StreamHandle*> streams;
  std::deque<MapOnHost> maps;  // live as long as the process: kernels name them
  DriverCounts counts;
  std::string complaints, fault;
  std::vector<std::string> ranges;
};
State& state() {
  static auto& all = *new State;
  return all;
}
thread_local cuda::Context* current = nullptr;

void complain(const std::string& what) { state().complaints += what + "\n"; }

// Device memory may be touched as long as this lives.
class Unprotected {
 public:
  explicit Unprotected(cuda::Context& device) : device_(device) { set(PROT_READ | PROT_WRITE); }
  ~Unprotected() { set(PROT_NONE); }
  Unprotected(const Unprotected&) = delete;
  Unprotected& operator=(const Unprotected&) = delete;

 private:
  void set(int access) {
    if (device_.next > device_.begin)
      mprotect(device_.begin, static_cast<std::size_t>(device_.next - device_.begin), access);
  }
  cuda::Context& device_;
};

// ---- Devices and contexts

int init(unsigned) { return 0; }
int driver_version(int* version) { return *version = 13000, 0; }
int device_count(int* count) { return *count = static_cast<int>(state().devices.size()), 0; }
int device(int* handle, int index) { return *handle = index, 0; }
const cuda::DeviceInfo& info_of(int handle) {
  return state().devices[static_cast<std::size_t>(handle)].info;
}
int device_name(char* to, int size, int handle) {
  std::snprintf(to, static_cast<std::size_t>(size), "emulated %s", info_of(handle).name.c_str());
  return 0;
}
int device_attribute(int* value, int which, int handle) {
  using Attribute = cuda::DeviceAttribute;
  const cuda::DeviceInfo& info = info_of(handle);
  constexpr int kMemoryBits = 4096;
  switch (static_cast<Attribute>(which)) {
    case Attribute::clock_khz:
      *value = static_cast<int>(info.clock_ghz * 1e6);
      break;
    case Attribute::multiprocessors:
      *value = info.multiprocessors;
      break;
    case Attribute::memory_clock_khz:
      *value = static_cast<int>(info.memory_gbps * 1e6 * 8 / 2 / kMemoryBits);
      break;
    case Attribute::memory_bits:
      *value = kMemoryBits;
      break;
    case Attribute::l2_bytes:
      *value = static_cast<int>(info.l2_bytes);
      break;
    case Attribute::threads:
      *value = info.threads;
      break;
    case Attribute::major:
      *value = info.capability / 10;
      break;
    case Attribute::minor:
      *value = info.capability % 10;
      break;
    case Attribute::shared_bytes:
      *value = static_cast<int>(info.shared_bytes);
      break;
    case Attribute::registers:
      *value = info.registers;
      break;
    case Attribute::shared_block_bytes:
      *value = static_cast<int>(info.shared_block_bytes);
      break;
  }
  return 0;
}
int device_memory(std::size_t* bytes, int handle) {
  *bytes = static_cast<std::size_t>(state().devices[static_cast<std::size_t>(handle)].limit);
  return 0;
}
int retain_context(cuda::Context** context, int handle) {
  *context = &state().devices[static_cast<std::size_t>(handle)];
  return 0;
}
int set_context(cuda::Context* context) { return current = context, 0; }

const char* kTexts[] = {"emulated error", ""};
int error_name(int, const char** name) { return *name = kTexts[0], 0; }
int error_text(int result, const char** text) {
  *text = result == kFailed ? state().fault.c_str() : kTexts[0];
  return 0;
}

// ---- Memory

int memory_info(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(state().mutex);
  if (!current) return kNoContext;
  *free = static_cast<std::size_t>(current->limit - current->taken);
  *total = static_cast<std::size_t>(current->limit);
  return 0;
}

// Addresses are not used twice. A page that is nobody's lies behind every block, and blocks begin
// where they are aligned no better than the driver promises.
int allocate(Address* address, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (!current) return kNoContext;
  if (bytes == 0) return kInvalid;
  if (static_cast<std::int64_t>(bytes) > current->limit - current->taken) return cuda::kOutOfMemory;
  constexpr std::size_t kAlignment = 256;
  const std::size_t room = (kAlignment + bytes + 2 * kPage - 1) / kPage * kPage;
  if (current->next + room > current->end) return cuda::kOutOfMemory;
  std::byte* const begin = current->next + kAlignment;
  current->next += room;
  current->taken += static_cast<std::int64_t>(bytes);
  *address = reinterpret_cast<Address>(begin);
  current->blocks[*address].bytes = bytes;
  const Unprotected access(*current);
  std::memset(begin, 0xff, bytes);  // NaN
  ++state().counts.allocations;
  state().counts.allocated_bytes += static_cast<std::int64_t>(bytes);
  return 0;
}

int free_block(Address address) {
  const std::lock_guard lock(state().mutex);
  if (!current) complain("memory is freed without a current context");
  for (cuda::Context& device : state().devices)
    if (const auto found = device.blocks.find(address); found != device.blocks.end()) {
      for (const cuda::StreamHandle* stream : state().streams)
        if (stream->device == &device && !stream->work.empty())
          complain("memory is freed while work is queued");
      const std::size_t bytes = found->second.bytes;
      device.taken -= static_cast<std::int64_t>(bytes);
      state().counts.allocated_bytes -= static_cast<std::int64_t>(bytes);
      device.blocks.erase(found);
      const Address first = (address + kPage - 1) / kPage * kPage, last = (address + bytes) / kPage;
      if (last * kPage > first)
        madvise(reinterpret_cast<void*>(first), last * kPage - first, MADV_DONTNEED);
      return 0;
    }
  complain("memory is freed that was not taken");
  return kInvalid;
}

int copy_in(Address to, const void* from, std::size_t bytes) {
  for (cuda::Context& device : state().devices)
    if (cuda::Context::Block* block = device.holding(to, bytes)) {
      const Unprotected access(device);
      std::memcpy(reinterpret_cast<void*>(to), from, bytes);
      block->is_uploaded = true;
      state().counts.uploaded_bytes += static_cast<std::int64_t>(bytes);
      return 0;
    }
  return kInvalid;
}
int copy_out(void* to, Address from, std::size_t bytes) {
  for (cuda::Context& device : state().devices)
    if (device.holding(from, bytes)) {
      const Unprotected access(device);
      std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
      state().counts.downloaded_bytes += static_cast<std::int64_t>(bytes);
      return 0;
    }
  return kInvalid;
}
int upload(Address to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  return current ? copy_in(to, from, bytes) : kNoContext;
}
int download(void* to, Address from, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  return current ? copy_out(to, from, bytes) : kNoContext;
}

int allocate_pinned(void** memory, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (!current) return kNoContext;
  *memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  std::memset(*memory, 0xff, bytes);
  state().pinned[static_cast<std::byte*>(*memory)] = bytes;
  state().counts.pinned_bytes += static_cast<std::int64_t>(bytes);
  return 0;
}
int free_pinned(void* memory) {
  const std::lock_guard lock(state().mutex);
  const auto known = state().pinned.find(static_cast<std::byte*>(memory));
  if (known == state().pinned.end()) {
    complain("page-locked memory is freed that was not taken");
    return kInvalid;
  }
  state().counts.pinned_bytes -= static_cast<std::int64_t>(known->second);
  state().pinned.erase(known);
  std::free(memory);
  return 0;
}
void check_pinned(const void* memory, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(memory);
  auto after = state().pinned.upper_bound(begin);
  if (after == state().pinned.begin() ||
      begin + bytes > std::prev(after)->first + std::prev(after)->second)
    complain("an asynchronous copy from or to memory that is not page-locked");
}

// ---- Streams, events and graphs

int create_stream(cuda::StreamHandle** stream, unsigned) {
  const std::lock_guard lock(state().mutex);
  if (!current) return kNoContext;
  *stream = new cuda::StreamHandle{current, {}, nullptr};
  state().streams.push_back(*stream);
  return 0;
}
int destroy_stream(cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  if (!stream->work.empty()) complain("a stream is destroyed while work is queued");
  std::erase(state().streams, stream);
  delete stream;
  return 0;
}
int enqueue(cuda::StreamHandle* stream, std::function<void()> work) {
  if (current != stream->device) complain("a stream of another device than the current one");
  if (stream->capture)
    stream->capture->work.push_back(std::move(work));
  else
    stream->work.push_back(std::move(work));
  return 0;
}
int synchronize(cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  if (!stream || stream->capture) return stream ? kInvalid : 0;  // the default one has done all
  try {
    while (!stream->work.empty()) {
      const std::function<void()> work = std::move(stream->work.front());
      stream->work.pop_front();
      work();
    }
  } catch (const Error& error) {
    state().fault = error.what();
    stream->work.clear();
    return kFailed;
  }
  return 0;
}
int create_event(cuda::EventHandle** event, unsigned) { return *event = new cuda::EventHandle, 0; }
int destroy_event(cuda::EventHandle* event) {
  delete event;
  return 0;
}
int record(cuda::EventHandle* event, cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  event->is_reached = false;
  return enqueue(stream, [event] { event->is_reached = true; });
}
int elapsed(float* milliseconds, cuda::EventHandle* a, cuda::EventHandle* b) {
  if (!a->is_reached || !b->is_reached) return kInvalid;
  return *milliseconds = 0.001f, 0;
}
void check_copy(int result) {
  if (result != 0) throw Fault("a copy outside of the memory in use");
}
int upload_async(Address to, const void* from, std::size_t bytes, cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  check_pinned(from, bytes);
  return enqueue(stream, [=] { check_copy(copy_in(to, from, bytes)); });
}
int download_async(void* to, Address from, std::size_t bytes, cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  check_pinned(to, bytes);
  return enqueue(stream, [=] { check_copy(copy_out(to, from, bytes)); });
}
int call_host(cuda::StreamHandle* stream, void (*function)(void*), void* argument) {
  const std::lock_guard lock(state().mutex);
  return enqueue(stream, [=] { function(argument); });
}
int begin_capture(cuda::StreamHandle* stream, int) {
  stream->capture = std::make_unique<cuda::GraphHandle>();
  return 0;
}
int end_capture(cuda::StreamHandle* stream, cuda::GraphHandle** graph) {
  return *graph = stream->capture.release(), 0;
}
int instantiate(cuda::GraphExecHandle** executable, cuda::GraphHandle* graph, unsigned long long) {
  const std::lock_guard lock(state().mutex);
  ++state().counts.graphs;
  return *executable = new cuda::GraphExecHandle{*graph}, 0;
}
int destroy_graph(cuda::GraphHandle* graph) {
  delete graph;
  return 0;
}
int destroy_executable(cuda::GraphExecHandle* executable) {
  delete executable;
  return 0;
}
int launch_graph(cuda::GraphExecHandle* executable, cuda::StreamHandle* stream) {
  const std::lock_guard lock(state().mutex);
  for (const auto& work : executable->work) enqueue(stream, work);
  return 0;
}

// ---- Kernels

int load_module(cuda::ModuleHandle** module, const void* image) {
  const auto [source, capability] = read_image(static_cast<const char*>(image));
  return *module = new cuda::ModuleHandle{source, capability, {}}, 0;
}
int unload_module(cuda::ModuleHandle* module) {
  delete module;
  return 0;
}
int function_of(cuda::FunctionHandle** function, cuda::ModuleHandle* module, const char* name) {
  if (module->source.text.find(name) == std::string::npos) return kNotFound;
  *function = &module->functions.emplace_back(
      cuda::FunctionHandle{&module->source, name, module->capability});
  return 0;
}
int function_attribute(int* value, int which, cuda::FunctionHandle*) {
  *value = which == static_cast<int>(cuda::FunctionAttribute::registers) ? 32 : 0;
  return 0;
}
int set_function_attribute(cuda::FunctionHandle*, int, int) { return 0; }

struct Arguments {
  struct alignas(64) Bytes {
    std::byte bytes[4096];
  };
  std::vector<Bytes> values;
};

void run_kernel(const cuda::FunctionHandle& function, cuda::Context& device,
                const cuda::Kernel::Launch& launch, Arguments& arguments) {
  std::vector<Region> regions;
  for (const auto& [address, block] : device.blocks) {
    auto* begin = reinterpret_cast<std::byte*>(address);
    regions.push_back({"a block of " + std::to_string(block.bytes) + " bytes", begin,
                       begin + block.bytes, block.is_uploaded, true});
  }
  const Program& program = program_of(*function.source, function.entry, function.capability);
  std::vector<void*> addresses;
  for (auto& value : arguments.values) addresses.push_back(value.bytes);
  const Unprotected access(device);
  Engine engine(program, function.entry, launch, regions, {0, device.info.shared_block_bytes});
  engine.run(addresses.data());
}

int launch(const cuda::LaunchConfig* config, cuda::FunctionHandle* function, void** values,
           void**) {
  const std::lock_guard lock(state().mutex);
  const Program& program = program_of(*function->source, function->entry, function->capability);
  std::vector<unsigned> sizes(64);
  sizes.resize(program.sizes(sizes.data()));
  auto arguments = std::make_shared<Arguments>();
  arguments->values.resize(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i)
    std::memcpy(arguments->values[i].bytes, values[i], sizes[i]);
  cuda::Kernel::Launch how{.grid = {config->grid_x, config->grid_y, config->grid_z},
                           .block = {config->block_x, config->block_y, config->block_z},
                           .shared_bytes = config->shared_bytes};
  for (unsigned i = 0; i < config->attribute_count; ++i)
    if (config->attributes[i].id == cuda::kCluster)
      how.cluster = config->attributes[i].value.grid.x;
  ++state().counts.launches;
  cuda::Context* device = config->stream->device;
  return enqueue(config->stream, [=] { run_kernel(*function, *device, how, *arguments); });
}

DType type_of_map(int type) {
  constexpr DType kTypes[] = {u8, i16, u8, i32, u8, i64, f16, f32, f64, bf16};
  return kTypes[type];
}
cuda::TensorMapBytes keep_map(cuda::TensorMapOf view, Address memory) {
  const std::lock_guard lock(state().mutex);
  state().maps.push_back({std::move(view), reinterpret_cast<std::byte*>(memory)});
  return map_bytes(&state().maps.back());
}
cuda::TensorMapOf view_of_map(int type, unsigned rank, const std::uint64_t* extents,
                              const std::uint64_t* strides, const std::uint32_t* steps,
                              int swizzle) {
  cuda::TensorMapOf view;
  view.dtype = type_of_map(type);
  view.extents.assign(extents, extents + rank);
  view.stride_bytes.assign(strides, strides + rank - 1);
  view.steps.assign(steps, steps + rank);
  view.swizzled = swizzle != 0;
  return view;
}
int encode_tensor_map(cuda::TensorMapBytes* map, int type, unsigned rank, Address memory,
                      const std::uint64_t* extents, const std::uint64_t* strides,
                      const std::uint32_t* box, const std::uint32_t* steps, int, int swizzle, int,
                      int) {
  cuda::TensorMapOf view = view_of_map(type, rank, extents, strides, steps, swizzle);
  view.box.assign(box, box + rank);
  return *map = keep_map(std::move(view), memory), 0;
}
int encode_im2col_map(cuda::TensorMapBytes* map, int type, unsigned rank, Address memory,
                      const std::uint64_t* extents, const std::uint64_t* strides, const int* lower,
                      const int* upper, unsigned channels, unsigned pixels,
                      const std::uint32_t* steps, int, int swizzle, int, int) {
  cuda::TensorMapOf view = view_of_map(type, rank, extents, strides, steps, swizzle);
  view.im2col = {{lower, lower + rank - 2},
                 {upper, upper + rank - 2},
                 static_cast<int>(channels),
                 static_cast<int>(pixels)};
  return *map = keep_map(std::move(view), memory), 0;
}

// ---- NVTX

int range_push(const char* name) {
  const std::lock_guard lock(state().mutex);
  state().ranges.push_back(">" + std::string(name));
  return 0;
}
int range_pop() {
  const std::lock_guard lock(state().mutex);
  state().ranges.push_back("<");
  return 0;
}

template <class F>
void* pointer_to(F* function) {
  return reinterpret_cast<void*>(function);
}

const std::map<std::string, void*>& functions() {
  static const std::map<std::string, void*> table = {
      {"cuInit", pointer_to(init)},
      {"cuDriverGetVersion", pointer_to(driver_version)},
      {"cuDeviceGetCount", pointer_to(device_count)},
      {"cuDeviceGet", pointer_to(device)},
      {"cuDeviceGetName", pointer_to(device_name)},
      {"cuDeviceGetAttribute", pointer_to(device_attribute)},
      {"cuDeviceTotalMem_v2", pointer_to(device_memory)},
      {"cuDevicePrimaryCtxRetain", pointer_to(retain_context)},
      {"cuCtxSetCurrent", pointer_to(set_context)},
      {"cuMemGetInfo_v2", pointer_to(memory_info)},
      {"cuMemAlloc_v2", pointer_to(allocate)},
      {"cuMemFree_v2", pointer_to(free_block)},
      {"cuMemcpyHtoD_v2", pointer_to(upload)},
      {"cuMemcpyDtoD_v2", pointer_to(upload)},  // whose other address is one of the host's, too
      {"cuMemcpyDtoH_v2", pointer_to(download)},
      {"cuStreamCreate", pointer_to(create_stream)},
      {"cuStreamDestroy_v2", pointer_to(destroy_stream)},
      {"cuStreamSynchronize", pointer_to(synchronize)},
      {"cuEventCreate", pointer_to(create_event)},
      {"cuEventDestroy_v2", pointer_to(destroy_event)},
      {"cuEventRecord", pointer_to(record)},
      {"cuEventElapsedTime", pointer_to(elapsed)},
      {"cuModuleLoadData", pointer_to(load_module)},
      {"cuModuleUnload", pointer_to(unload_module)},
      {"cuModuleGetFunction", pointer_to(function_of)},
      {"cuFuncGetAttribute", pointer_to(function_attribute)},
      {"cuFuncSetAttribute", pointer_to(set_function_attribute)},
      {"cuLaunchKernelEx", pointer_to(launch)},
      {"cuTensorMapEncodeTiled", pointer_to(encode_tensor_map)},
      {"cuTensorMapEncodeIm2col", pointer_to(encode_im2col_map)},
      {"cuMemAllocHost_v2", pointer_to(allocate_pinned)},
      {"cuMemFreeHost", pointer_to(free_pinned)},
      {"cuMemcpyHtoDAsync_v2", pointer_to(upload_async)},
      {"cuMemcpyDtoHAsync_v2", pointer_to(download_async)},
      {"cuLaunchHostFunc", pointer_to(call_host)},
      {"cuStreamBeginCapture_v2", pointer_to(begin_capture)},
      {"cuStreamEndCapture", pointer_to(end_capture)},
      {"cuGraphInstantiateWithFlags", pointer_to(instantiate)},
      {"cuGraphDestroy", pointer_to(destroy_graph)},
      {"cuGraphExecDestroy", pointer_to(destroy_executable)},
      {"cuGraphLaunch", pointer_to(launch_graph)},
      {"cuGetErrorName", pointer_to(error_name)},
      {"cuGetErrorString", pointer_to(error_text)},
      {"nvtxRangePushA", pointer_to(range_push)},
      {"nvtxRangePop", pointer_to(range_pop)},
  };
  return table;
}

}  // namespace

void install_driver(const std::vector<PretendedGpu>& gpus) {
  constexpr std::size_t kAddresses = std::size_t{16} << 30;  // nothing is behind them yet
  for (const PretendedGpu& wanted : gpus) {
    cuda::Context& gpu = state().devices.emplace_back();
    gpu.info = cuda::typical_device(wanted.capability);
    gpu.limit = wanted.memory_bytes;
    void* memory =
        mmap(nullptr, kAddresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) internal_error("emulator", "cannot reserve addresses");
    gpu.begin = gpu.next = static_cast<std::byte*>(memory);
    gpu.end = gpu.begin + kAddresses;
  }
  const auto find = [](const char* name) -> void* {
    const auto found = functions().find(name);
    return found == functions().end() ? nullptr : found->second;
  };
  cuda::SharedLibrary::stand_in("libcuda.so.1", find);
  cuda::SharedLibrary::stand_in("libnvToolsExt.so.1", find);
  install_nvrtc();
}

DriverCounts driver_counts() {
  const std::lock_guard lock(state().mutex);
  return state().counts;
}

std::string driver_complaints() {
  const std::lock_guard lock(state().mutex);
  return std::exchange(state().complaints, {});
}

std::vector<std::string> driver_ranges() {
  const std::lock_guard lock(state().mutex);
  return std::exchange(state().ranges, {});
}

}  // namespace tensor::emulator
