#include "src/kernels/cuda/driver/load.h"

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <tuple>

#include "src/core/cores.h"
#include "src/kernels/cuda/driver/kernel_cache.h"
#include "src/kernels/cuda/driver/tensor_map.h"

namespace tensor::cuda {
namespace {

// Calls work(i) for all i below `count` on all cores; the first exception is thrown again.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::exception_ptr error;
  std::mutex mutex;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
  };
  std::vector<std::thread> threads;
  const auto cores = static_cast<std::size_t>(available_cores());
  for (std::size_t i = 1; i < std::min(count, cores); ++i) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

KernelCache& cache() {
  static KernelCache cache = KernelCache::standard();
  return cache;
}

// Loaded kernels by device and entry, which holds a hash of the text, and by the text itself.
template <class Text>
using Key = std::tuple<const Device*, Text, Text>;
using Loaded = std::map<Key<std::string>, std::weak_ptr<Kernel>, std::less<>>;
std::mutex loaded_mutex;
Loaded& loaded() {
  static auto& table = *new Loaded;  // outlives executables at exit
  return table;
}

Cubin compiled(const Call& call, const DeviceInfo& device, const Cubin* refused) {
  const Compiler& compiler = Compiler::get();
  const std::string architecture = device.architecture();
  return cache().get(
      compiler.key(call.source, architecture),
      [&] { return compiler.compile(call.source, architecture); }, refused);
}

}  // namespace

Cubin compiled(const Call& call, const DeviceInfo& device) {
  return compiled(call, device, nullptr);
}

std::shared_ptr<Kernel> load_kernel(Device& device, const Call& call, const Cubin& cubin) {
  return std::make_shared<Kernel>(device, cubin, call.entry,
                                  [&] { return compiled(call, device.info(), &cubin); });
}

std::vector<std::shared_ptr<Kernel>> load_kernels(Device& device,
                                                  std::span<const Call* const> calls) {
  const auto key_of = [&](const Call& call) {
    return Key<std::string_view>{&device, call.entry, call.source.text};
  };
  std::map<Key<std::string_view>, std::pair<const Call*, std::shared_ptr<Kernel>>> wanted;
  for (const Call* call : calls) wanted.try_emplace(key_of(*call), call, nullptr);
  std::vector<std::pair<const Call*, std::shared_ptr<Kernel>>*> missing;
  {
    const std::lock_guard lock(loaded_mutex);
    for (auto& [key, kernel] : wanted) {
      const auto known = loaded().find(key);
      if (known != loaded().end()) kernel.second = known->second.lock();
      if (!kernel.second) missing.push_back(&kernel);
    }
  }
  if (!missing.empty()) {
    in_parallel(missing.size(), [&](std::size_t i) {
      const Call& call = *missing[i]->first;
      missing[i]->second = load_kernel(device, call, compiled(call, device.info()));
    });
  }
  const std::lock_guard lock(loaded_mutex);
  std::erase_if(loaded(), [](const auto& entry) { return entry.second.expired(); });
  for (const auto* one : missing) loaded()[Key<std::string>(key_of(*one->first))] = one->second;
  std::vector<std::shared_ptr<Kernel>> kernels;
  for (const Call* call : calls) kernels.push_back(wanted.at(key_of(*call)).second);
  return kernels;
}

void start(Stream& stream, Kernel& kernel, const Call& call, const Resolve& resolve,
           bool follows_kernel) {
  // The copies of numbers and maps must not move once their addresses are taken.
  std::vector<Address> addresses(call.arguments.size());
  std::vector<TensorMapBytes> maps(call.arguments.size());
  std::vector<void*> places;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    if (const auto* pointer = std::get_if<Pointer>(&call.arguments[i])) {
      addresses[i] = resolve(*pointer) + static_cast<Address>(pointer->bytes);
      places.push_back(&addresses[i]);
    } else if (const auto* view = std::get_if<TensorMapOf>(&call.arguments[i])) {
      maps[i] = encode(stream.device(), *view, resolve(view->memory));
      places.push_back(&maps[i]);
    } else {
      places.push_back(
          const_cast<std::byte*>(std::get<std::vector<std::byte>>(call.arguments[i]).data()));
    }
  }
  places.push_back(nullptr);
  Launch launch = call.launch;
  launch.overlaps_previous &= follows_kernel;
  kernel.run(stream, launch, places.data());
}

}  // namespace tensor::cuda
