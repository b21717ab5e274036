#include "tests/cuda/emulator/driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "tests/cuda/emulator/driver_state.h"
#include "tests/cuda/emulator/nvrtc.h"

namespace tensor::emulator {

State& state() {
  static auto& all = *new State;
  return all;
}

namespace {

// ---- Devices and contexts

// Children of a process that has called the driver are told that it is not initialised.
int init(unsigned) {
  pid_t nobody = 0;
  state().process.compare_exchange_strong(nobody, getpid());
  return state().process == getpid() ? 0 : 3;
}
int driver_version(int* version) { return *version = 13000, 0; }
int device_count(int* count) {
  *count = static_cast<int>(state().devices.size());
  return state().process == getpid() ? 0 : 3;
}
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
int set_context(cuda::Context* context) {
  current = context;
  return state().process == getpid() ? 0 : 3;
}

struct ErrorText {
  int result;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
};
const ErrorText& text_of(int result) {
  static constexpr ErrorText kOther{0, "emulated error", "emulated error"};
  const auto* known = std::find_if(std::begin(kErrors), std::end(kErrors),
                                   [&](const ErrorText& e) { return e.result == result; });
  return known == std::end(kErrors) ? kOther : *known;
}
int error_name(int result, const char** name) { return *name = text_of(result).name, 0; }
int error_text(int result, const char** text) {
  *text = result == kFailed ? state().fault.c_str() : text_of(result).text;
  return 0;
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

const Functions& functions() {
  static const Functions table = [] {
    Functions all = {
        {"cuInit", pointer_to(init)},
        {"cuDriverGetVersion", pointer_to(driver_version)},
        {"cuDeviceGetCount", pointer_to(device_count)},
        {"cuDeviceGet", pointer_to(device)},
        {"cuDeviceGetName", pointer_to(device_name)},
        {"cuDeviceGetAttribute", pointer_to(device_attribute)},
        {"cuDeviceTotalMem_v2", pointer_to(device_memory)},
        {"cuDevicePrimaryCtxRetain", pointer_to(retain_context)},
        {"cuCtxSetCurrent", pointer_to(set_context)},
        {"cuGetErrorName", pointer_to(error_name)},
        {"cuGetErrorString", pointer_to(error_text)},
        {"nvtxRangePushA", pointer_to(range_push)},
        {"nvtxRangePop", pointer_to(range_pop)},
    };
    all.merge(memory_functions());
    all.merge(stream_functions());
    all.merge(kernel_functions());
    return all;
  }();
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
  SharedLibrary::stand_in("libcuda.so.1", find);
  SharedLibrary::stand_in("copy of libcuda.so.1", [find](const char* name) {
    state().process = 0;
    return find(name);
  });
  SharedLibrary::stand_in("libnvToolsExt.so.1", find);
  SharedLibrary::stand_in("libnccl.so.2", [](const char* name) -> void* {
    const Functions all = nccl_functions();
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second;
  });
  install_nvrtc();
}

DriverCounts driver_counts() {
  const std::lock_guard lock(state().mutex);
  return state().counts;
}

void fail_kernel(int others, int error) {
  const std::lock_guard lock(state().mutex);
  state().kernels_until_failure = others;
  state().failure = error;
}

SkippedKernels::SkippedKernels() {
  const std::lock_guard lock(state().mutex);
  state().skips_kernels = true;
}
SkippedKernels::~SkippedKernels() {
  const std::lock_guard lock(state().mutex);
  state().skips_kernels = false;
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
