// The CUDA driver's interface as far as it is used, declared here so that building needs no
// toolkit. tests/cuda compares it with the toolkit's own header where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/core/shared_library.h"
#include "src/kernels/cuda/kernel_source.h"

namespace tensor::cuda {

struct Context;
struct StreamHandle;
struct EventHandle;
struct ModuleHandle;
struct FunctionHandle;
struct GraphHandle;
struct GraphExecHandle;
struct NodeHandle;

struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    int flag;
    struct {
      unsigned x, y, z;
    } grid;
  } value;
};

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  StreamHandle* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

/// CUgraphNodeParams of a conditional node.
struct ConditionalNode {
  int type = 13, reserved[3] = {};
  unsigned long long handle = 0;
  int kind = 0;  // its body runs where the handle's value is not 0
  unsigned size = 1;
  GraphHandle** bodies = nullptr;  // set when the node is added
  Context* context = nullptr;
  long long padding[26] = {};
};

/// The functions used, by what they do. A result of 0 is success.
struct Driver {
  /// Opened and initialised once, and once more after Device::start_anew. UserError, naming what
  /// was tried, when there is none.
  static const Driver& get();

  SharedLibrary library;
  template <class... T>
  using Call = int (*)(T...);
  Call<unsigned> init = find<unsigned>("cuInit");
  Call<int*> driver_version = find<int*>("cuDriverGetVersion");
  Call<int*> device_count = find<int*>("cuDeviceGetCount");
  Call<int*, int> device = find<int*, int>("cuDeviceGet");
  Call<char*, int, int> device_name = find<char*, int, int>("cuDeviceGetName");
  Call<int*, int, int> device_attribute = find<int*, int, int>("cuDeviceGetAttribute");
  Call<std::size_t*, int> device_memory = find<std::size_t*, int>("cuDeviceTotalMem_v2");
  Call<Context**, int> retain_context = find<Context**, int>("cuDevicePrimaryCtxRetain");
  Call<Context*> set_context = find<Context*>("cuCtxSetCurrent");
  Call<std::size_t*, std::size_t*> memory_info =
      find<std::size_t*, std::size_t*>("cuMemGetInfo_v2");
  Call<Address*, std::size_t> allocate = find<Address*, std::size_t>("cuMemAlloc_v2");
  Call<Address> free = find<Address>("cuMemFree_v2");
  Call<Address, const void*, std::size_t> upload =
      find<Address, const void*, std::size_t>("cuMemcpyHtoD_v2");
  Call<void*, Address, std::size_t> download = find<void*, Address, std::size_t>("cuMemcpyDtoH_v2");
  Call<Address, Address, std::size_t> copy = find<Address, Address, std::size_t>("cuMemcpyDtoD_v2");
  Call<Address, unsigned char, std::size_t> fill =
      find<Address, unsigned char, std::size_t>("cuMemsetD8_v2");
  Call<StreamHandle**, unsigned> create_stream = find<StreamHandle**, unsigned>("cuStreamCreate");
  Call<StreamHandle*> destroy_stream = find<StreamHandle*>("cuStreamDestroy_v2");
  Call<StreamHandle*> synchronize = find<StreamHandle*>("cuStreamSynchronize");
  Call<EventHandle**, unsigned> create_event = find<EventHandle**, unsigned>("cuEventCreate");
  Call<EventHandle*> destroy_event = find<EventHandle*>("cuEventDestroy_v2");
  Call<EventHandle*, StreamHandle*> record = find<EventHandle*, StreamHandle*>("cuEventRecord");
  Call<EventHandle*> query_event = find<EventHandle*>("cuEventQuery");
  Call<EventHandle*> wait_for_event = find<EventHandle*>("cuEventSynchronize");
  Call<float*, EventHandle*, EventHandle*> elapsed =
      find<float*, EventHandle*, EventHandle*>("cuEventElapsedTime");
  Call<ModuleHandle**, const void*> load_module =
      find<ModuleHandle**, const void*>("cuModuleLoadData");
  Call<ModuleHandle*> unload_module = find<ModuleHandle*>("cuModuleUnload");
  Call<FunctionHandle**, ModuleHandle*, const char*> function_of =
      find<FunctionHandle**, ModuleHandle*, const char*>("cuModuleGetFunction");
  Call<int*, int, FunctionHandle*> function_attribute =
      find<int*, int, FunctionHandle*>("cuFuncGetAttribute");
  Call<FunctionHandle*, int, int> set_function_attribute =
      find<FunctionHandle*, int, int>("cuFuncSetAttribute");
  Call<const LaunchConfig*, FunctionHandle*, void**, void**> launch =
      find<const LaunchConfig*, FunctionHandle*, void**, void**>("cuLaunchKernelEx");
  Call<TensorMapBytes*, int, unsigned, Address, const std::uint64_t*, const std::uint64_t*,
       const std::uint32_t*, const std::uint32_t*, int, int, int, int>
      encode_tensor_map =
          find<TensorMapBytes*, int, unsigned, Address, const std::uint64_t*, const std::uint64_t*,
               const std::uint32_t*, const std::uint32_t*, int, int, int, int>(
              "cuTensorMapEncodeTiled");
  Call<TensorMapBytes*, int, unsigned, Address, const std::uint64_t*, const std::uint64_t*,
       const int*, const int*, unsigned, unsigned, const std::uint32_t*, int, int, int, int>
      encode_im2col_map = find<TensorMapBytes*, int, unsigned, Address, const std::uint64_t*,
                               const std::uint64_t*, const int*, const int*, unsigned, unsigned,
                               const std::uint32_t*, int, int, int, int>("cuTensorMapEncodeIm2col");
  Call<void**, std::size_t> allocate_pinned = find<void**, std::size_t>("cuMemAllocHost_v2");
  Call<void*> free_pinned = find<void*>("cuMemFreeHost");
  Call<Address, const void*, std::size_t, StreamHandle*> upload_async =
      find<Address, const void*, std::size_t, StreamHandle*>("cuMemcpyHtoDAsync_v2");
  Call<void*, Address, std::size_t, StreamHandle*> download_async =
      find<void*, Address, std::size_t, StreamHandle*>("cuMemcpyDtoHAsync_v2");
  Call<Address, Address, std::size_t, StreamHandle*> copy_async =
      find<Address, Address, std::size_t, StreamHandle*>("cuMemcpyDtoDAsync_v2");
  Call<StreamHandle*, void (*)(void*), void*> call_host =
      find<StreamHandle*, void (*)(void*), void*>("cuLaunchHostFunc");
  Call<StreamHandle*, int> begin_capture = find<StreamHandle*, int>("cuStreamBeginCapture_v2");
  Call<StreamHandle*, GraphHandle**> end_capture =
      find<StreamHandle*, GraphHandle**>("cuStreamEndCapture");
  Call<GraphExecHandle**, GraphHandle*, unsigned long long> instantiate =
      find<GraphExecHandle**, GraphHandle*, unsigned long long>("cuGraphInstantiateWithFlags");
  Call<GraphHandle*> destroy_graph = find<GraphHandle*>("cuGraphDestroy");
  Call<GraphExecHandle*> destroy_executable = find<GraphExecHandle*>("cuGraphExecDestroy");
  Call<GraphExecHandle*, StreamHandle*> launch_graph =
      find<GraphExecHandle*, StreamHandle*>("cuGraphLaunch");
  /// Of drivers since CUDA 12.3, null in older ones.
  Call<unsigned long long*, GraphHandle*, Context*, unsigned, unsigned> create_condition =
      find_newer<unsigned long long*, GraphHandle*, Context*, unsigned, unsigned>(
          "cuGraphConditionalHandleCreate");
  Call<NodeHandle**, GraphHandle*, NodeHandle* const*, const void*, std::size_t, ConditionalNode*>
      add_node = find_newer<NodeHandle**, GraphHandle*, NodeHandle* const*, const void*,
                            std::size_t, ConditionalNode*>("cuGraphAddNode_v2");
  Call<StreamHandle*, int*, unsigned long long*, GraphHandle**, NodeHandle* const**, const void**,
       std::size_t*>
      capture_info =
          find_newer<StreamHandle*, int*, unsigned long long*, GraphHandle**, NodeHandle* const**,
                     const void**, std::size_t*>("cuStreamGetCaptureInfo_v3");
  Call<StreamHandle*, NodeHandle**, const void*, std::size_t, unsigned> set_capture_position =
      find_newer<StreamHandle*, NodeHandle**, const void*, std::size_t, unsigned>(
          "cuStreamUpdateCaptureDependencies_v2");
  Call<StreamHandle*, GraphHandle*, NodeHandle* const*, const void*, std::size_t, int>
      begin_capture_to = find_newer<StreamHandle*, GraphHandle*, NodeHandle* const*, const void*,
                                    std::size_t, int>("cuStreamBeginCaptureToGraph");
  Call<int, const char**> error_name = find<int, const char**>("cuGetErrorName");
  Call<int, const char**> error_text = find<int, const char**>("cuGetErrorString");

 private:
  template <class... T>
  Call<T...> find(const char* name) const {
    return library.function<int(T...)>(name);
  }
  template <class... T>
  Call<T...> find_newer(const char* name) const {
    return library.newer_function<int(T...)>(name);
  }
};
inline const Driver& driver() { return Driver::get(); }

/// cuDeviceGetAttribute's numbers.
enum class DeviceAttribute {
  clock_khz = 13,
  multiprocessors = 16,
  memory_clock_khz = 36,
  memory_bits = 37,
  l2_bytes = 38,
  threads = 39,
  major = 75,
  minor = 76,
  shared_bytes = 81,
  registers = 82,
  shared_block_bytes = 97,
};

/// cuFuncGetAttribute's numbers.
enum class FunctionAttribute { local_bytes = 3, registers = 4, dynamic_shared_bytes = 8 };

constexpr int kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100, kNotReady = 600;
constexpr unsigned kStreamOfItsOwn = 1;   // does not wait for the default stream
constexpr int kThreadLocalCapture = 1;    // other threads' calls are not in the way
constexpr unsigned kInPlaceOfOthers = 1;  // set_capture_position: the only nodes to depend on
constexpr int kOverlapsPrevious = 6;      // programmatic stream serialisation
constexpr int kCluster = 4;               // its dimensions

/// Whether the process must be started again after this error: the driver answers every later call
/// with it (CUDA driver API, "CUresult").
bool is_sticky(int result);
/// Whether the driver does not take the machine code that it was given.
bool is_refusal(int result);

}  // namespace tensor::cuda
