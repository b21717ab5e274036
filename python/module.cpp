// tensor_vision._tensor: models::service::Model for Python. What is nice to use is built on it in
// tensor_vision/__init__.py.
#include <models/service/model.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <tensor/creation.h>
#include <tensor/interop.h>
#include <tensor/io.h>
#include <tensor/ops.h>
#include <tensor/version.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

/// As dlpack.h has it, which this module needs nothing else of.
struct DLManagedTensor {
  nanobind::dlpack::dltensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};

namespace nb = nanobind;

namespace {

using models::service::Model;
using tensor::Tensor;
using tensor::nn::StateDict;

/// Memory of Python that a tensor lies on.
struct Borrowed {
  DLManagedTensor managed{};
  nb::ndarray<nb::ro> array;
};

/// The elements of an array where they lie. UserError, by `name`, on anything else.
Tensor tensor_of(const std::string& name, nb::handle value) {
  auto borrowed = std::make_unique<Borrowed>();
  nb::ndarray<nb::ro>& array = borrowed->array;
  if (!nb::try_cast(value, array))
    tensor::fail(name, "got ", nb::type_name(value.type()).c_str(),
                 ", need a NumPy array or another object with __dlpack__, of numbers");
  borrowed->managed.dl_tensor = {const_cast<void*>(array.data()),
                                 {array.device_type(), array.device_id()},
                                 static_cast<std::int32_t>(array.ndim()),
                                 array.dtype(),
                                 const_cast<std::int64_t*>(array.shape_ptr()),
                                 const_cast<std::int64_t*>(array.stride_ptr()),
                                 0};
  borrowed->managed.manager_ctx = borrowed.get();
  borrowed->managed.deleter = [](DLManagedTensor* self) {
    const nb::gil_scoped_acquire gil;  // the last view may go in a thread that does not hold it
    delete static_cast<Borrowed*>(self->manager_ctx);
  };
  return tensor::from_dlpack(&borrowed.release()->managed);
}

/// The same memory as a NumPy array; bf16, which NumPy does not have, as f32.
nb::object array_of(Tensor x) {
  if (x.dtype() == tensor::bf16) x = x.astype(tensor::f32);
  if (x.is_read_only()) x = x.copy();
  DLManagedTensor* managed = tensor::to_dlpack(x);
  const nb::capsule owner(managed, [](void* self) noexcept {
    static_cast<DLManagedTensor*>(self)->deleter(static_cast<DLManagedTensor*>(self));
  });
  const nb::dlpack::dltensor& view = managed->dl_tensor;
  const std::vector<std::size_t> shape(view.shape, view.shape + view.ndim);
  return nb::cast(nb::ndarray<nb::numpy>(view.data, shape.size(), shape.data(), owner, view.strides,
                                         view.dtype));
}

/// An output on a GPU, for others to take as a capsule.
struct GpuTensor {
  Tensor x;
  std::uintptr_t stream = 0;  // what it is made on, if `is_made` is false
  bool is_made = true;

  // Whoever reads on the same stream need not wait.
  nb::object capsule(const nb::object& reader) {
    const bool is_same = !is_made && nb::isinstance<nb::int_>(reader) &&
                         stream_of(nb::cast<std::int64_t>(reader)) == stream;
    if (!is_made && !is_same) {
      const nb::gil_scoped_release others_run;
      tensor::synchronize(x.device(), reinterpret_cast<void*>(stream));
    }
    return nb::steal(PyCapsule_New(tensor::to_dlpack(x), "dltensor", [](PyObject* self) {
      if (!PyCapsule_IsValid(self, "dltensor")) return;  // it was taken
      auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(self, "dltensor"));
      managed->deleter(managed);
    }));
  }
  /// DLPack calls the default stream 1.
  static std::uintptr_t stream_of(std::int64_t number) {
    return number == 1 ? 0 : static_cast<std::uintptr_t>(number);
  }
};

/// An output as an array, or, on a GPU, as what is made on a stream.
nb::object output_of(Tensor x, const std::optional<std::int64_t>& stream) {
  if (!x.device().is_cuda()) return array_of(std::move(x));
  return nb::cast(GpuTensor{std::move(x), GpuTensor::stream_of(stream.value_or(0)), !stream});
}

/// What NumPy calls a type.
const char* name_of(tensor::DType dtype) {
  constexpr const char* kNames[] = {"bool",  "uint8",   "int8",     "int16",   "int32",
                                    "int64", "float16", "bfloat16", "float32", "float64"};
  return kNames[static_cast<int>(dtype)];
}

nb::object port_of(const models::service::Port& port) {
  nb::object shape = nb::none();
  if (port.shape)
    shape = nb::tuple(nb::cast(std::vector<std::int64_t>(port.shape->begin(), port.shape->end())));
  return nb::make_tuple(port.name, name_of(port.dtype), shape, port.is_optional);
}

nb::list ports_of(Model& model, std::vector<models::service::Port> models::service::Ports::*side) {
  const models::service::Ports* ports = nullptr;
  {
    const nb::gil_scoped_release others_run;
    ports = &model.ports();
  }
  nb::list result;
  for (const models::service::Port& port : ports->*side) result.append(port_of(port));
  return result;
}

/// Without a stream inputs on a GPU were given to the default one, which is waited for.
nb::dict run(Model& model, const std::map<std::string, nb::object>& inputs,
             const std::optional<std::int64_t>& stream) {
  StateDict given, results;
  for (const auto& [name, value] : inputs) given.emplace(name, tensor_of(name, value));
  {
    const nb::gil_scoped_release others_run;
    if (stream) {
      results = model.enqueue(given, reinterpret_cast<void*>(GpuTensor::stream_of(*stream)));
    } else {
      for (const auto& [name, x] : given) tensor::synchronize(x.device(), nullptr);
      results = model.run(given);
    }
  }
  nb::dict outputs;
  for (auto& [name, value] : results) outputs[name.c_str()] = output_of(std::move(value), stream);
  return outputs;
}

/// Findings, classes and JSON, each finding as label, id, score and box.
nb::tuple answer_of(const Model& model, const models::service::Seen& seen) {
  if (seen.error) std::rethrow_exception(seen.error);
  nb::list findings;
  for (const models::Finding& finding : seen.result.findings)
    findings.append(
        nb::make_tuple(finding.label, finding.id, finding.score,
                       finding.box ? nb::object(nb::tuple(nb::cast(*finding.box))) : nb::none()));
  const Tensor& classes = seen.result.labels;
  return nb::make_tuple(findings, classes.defined() ? array_of(classes) : nb::none(),
                        models::service::json_of(seen.result, *model.program()));
}

template <class Picture>
nb::tuple look(Model& model, const Picture& picture) {
  models::service::Seen seen;
  {
    const nb::gil_scoped_release others_run;
    seen = model.look(picture);
  }
  return answer_of(model, seen);
}

void add_errors(nb::module_& module) {
  const nb::exception<tensor::Error> error(module, "Error", PyExc_RuntimeError);
  const nb::tuple of_values = nb::make_tuple(error, nb::handle(PyExc_ValueError));
  nb::exception<tensor::UserError>(module, "UserError", of_values);
  nb::exception<tensor::InternalError>(module, "InternalError", error);
}

}  // namespace

NB_MODULE(_tensor, module) {
  add_errors(module);
  module.attr("version") = std::string(tensor::version());
  nb::class_<GpuTensor>(module, "GpuTensor")
      .def_prop_ro("dtype", [](const GpuTensor& self) { return name_of(self.x.dtype()); })
      .def_prop_ro(
          "shape",
          [](const GpuTensor& self) {
            const tensor::Shape& shape = self.x.shape();
            return nb::tuple(nb::cast(std::vector<std::int64_t>(shape.begin(), shape.end())));
          })
      .def_prop_ro(
          "device",
          [](const GpuTensor& self) { return "cuda:" + std::to_string(self.x.device().index()); })
      .def(
          "__dlpack__",
          [](GpuTensor& self, const nb::object& stream, const nb::kwargs&) {
            return self.capsule(stream);
          },
          nb::arg("stream") = nb::none(), nb::arg("kwargs"))
      .def("__dlpack_device__", [](const GpuTensor& self) {
        constexpr int kCuda = 2;
        return nb::make_tuple(kCuda, self.x.device().index());
      });
  nb::class_<Model>(module, "Model")
      .def("inputs", [](Model& model) { return ports_of(model, &models::service::Ports::inputs); })
      .def("outputs",
           [](Model& model) { return ports_of(model, &models::service::Ports::outputs); })
      .def("needed_inputs", &Model::needed_inputs)
      .def("run", &run, nb::arg("inputs"), nb::arg("stream") = nb::none())
      .def("look",
           [](Model& model, nb::bytes file) {
             return look(model, std::as_bytes(std::span(file.c_str(), file.size())));
           })
      .def("look",
           [](Model& model, nb::object image) { return look(model, tensor_of("image", image)); });
  module.def(
      "open",
      [](const std::string& path, const std::map<std::string, std::string>& values) {
        models::service::OpenOptions options;
        for (const auto& [name, value] : values) options.set(name, value);
        return Model::open(path, options);
      },
      nb::call_guard<nb::gil_scoped_release>());
}
