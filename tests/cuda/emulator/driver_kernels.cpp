// Kernels of the emulated driver: modules, launches, and the maps of tensors that they are given.
#include <cstring>

#include "tests/cuda/emulator/driver_state.h"
#include "tests/cuda/emulator/nvrtc.h"

namespace tensor::emulator {
namespace {

int load_module(cuda::ModuleHandle** module, const void* image) {
  const std::lock_guard lock(state().mutex);
  if (const int why = trouble()) return why;
  const auto known = read_image(static_cast<const char*>(image));
  if (!known) return kInvalidImage;
  const auto& [source, capability] = *known;
  if (capability != current->info.capability) return kNoBinary;
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
int set_function_attribute(cuda::FunctionHandle* function, int which, int) {
  if (which == static_cast<int>(cuda::FunctionAttribute::dynamic_shared_bytes))
    function->asks_shared = true;
  return 0;
}

struct Arguments {
  struct alignas(64) Bytes {
    std::byte bytes[4096];
  };
  std::vector<Bytes> values;
};

void run_kernel(const cuda::FunctionHandle& function, cuda::Context& device,
                const cuda::Launch& launch, Arguments& arguments) {
  if (int& left = state().kernels_until_failure; left >= 0 && left-- == 0)
    throw Failure{state().failure};
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
  const auto shared_limit = function.asks_shared ? device.info.shared_block_bytes : 48 << 10;
  Engine engine(program, function.entry, launch, regions, {0, shared_limit});
  engine.run(addresses.data());
}

int launch(const cuda::LaunchConfig* config, cuda::FunctionHandle* function, void** values,
           void**) {
  const std::lock_guard lock(state().mutex);
  ++state().counts.launches;
  if (state().skips_kernels) return config->stream->device->lost;
  const Program& program = program_of(*function->source, function->entry, function->capability);
  std::vector<unsigned> sizes(64);
  sizes.resize(program.sizes(sizes.data()));
  auto arguments = std::make_shared<Arguments>();
  arguments->values.resize(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i)
    std::memcpy(arguments->values[i].bytes, values[i], sizes[i]);
  cuda::Launch how{.grid = {config->grid_x, config->grid_y, config->grid_z},
                   .block = {config->block_x, config->block_y, config->block_z},
                   .shared_bytes = config->shared_bytes};
  for (unsigned i = 0; i < config->attribute_count; ++i)
    if (config->attributes[i].id == cuda::kCluster)
      how.cluster = config->attributes[i].value.grid.x;
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

}  // namespace

Functions kernel_functions() {
  return {
      {"cuModuleLoadData", pointer_to(load_module)},
      {"cuModuleUnload", pointer_to(unload_module)},
      {"cuModuleGetFunction", pointer_to(function_of)},
      {"cuFuncGetAttribute", pointer_to(function_attribute)},
      {"cuFuncSetAttribute", pointer_to(set_function_attribute)},
      {"cuLaunchKernelEx", pointer_to(launch)},
      {"cuTensorMapEncodeTiled", pointer_to(encode_tensor_map)},
      {"cuTensorMapEncodeIm2col", pointer_to(encode_im2col_map)},
  };
}

}  // namespace tensor::emulator
