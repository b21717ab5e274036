/* tensor's C interface: models (a checkpoint folder, a plan or an ONNX file), tensors, and
   pictures. Link with -ltensor_c. docs/c.md has a first program.

   Every function returns a status, TC_OK or why not; tc_error() then has the reason in words, for
   the calling thread. Results go through pointers, which a failing function leaves alone. Objects
   are handles: whatever is passed in their place (NULL, one that was freed, one of another kind,
   any other number) gives TC_BAD_HANDLE; enumerators are taken as int, so that wrong ones
   are refused, too. Freeing a handle while other threads use it is allowed:
   what it stands for goes with the last use. Functions may be called by any threads at a time. */
#ifndef TENSOR_C_H
#define TENSOR_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TENSOR_C_API __attribute__((visibility("default")))
#else
#define TENSOR_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What was added to the interface counts TC_ABI up; what would break programs changes the
   library's SONAME. */
#define TC_ABI 2

typedef enum tc_status {
  TC_OK = 0,
  TC_BAD_ARGUMENT = 1, /* what the caller can mend: a shape, a file, an option, a NULL */
  TC_BAD_HANDLE = 2,
  TC_NO_MEMORY = 3,
  TC_FAILED = 4 /* anything else: a fault of the library, NaN in a model's outputs */
} tc_status;

typedef enum tc_dtype {
  TC_BOOL = 0,
  TC_U8 = 1,
  TC_I8 = 2,
  TC_I16 = 3,
  TC_I32 = 4,
  TC_I64 = 5,
  TC_F16 = 6,
  TC_BF16 = 7,
  TC_F32 = 8,
  TC_F64 = 9
} tc_dtype;

typedef enum tc_log_level { TC_LOG_INFO = 0, TC_LOG_WARNING = 1 } tc_log_level;

typedef struct tc_options tc_options;
typedef struct tc_model tc_model;
typedef struct tc_tensor tc_tensor;
typedef struct tc_answer tc_answer;
struct DLManagedTensor; /* of dlpack.h */

/* ---- The library */

TENSOR_C_API const char* tc_version(void); /* "0.1.0" */
TENSOR_C_API int tc_abi(void);             /* TC_ABI of the library that is loaded */
/* Why the last call of this thread that failed did so. The text stays until this thread's next
   failure; it is empty before the first. */
TENSOR_C_API const char* tc_error(void);
TENSOR_C_API const char* tc_status_name(int status); /* "TC_OK" */
/* Slow ways that the library takes are told here, one line at a time, from any thread, several at
   once. A NULL function: nowhere, as in the beginning. */
typedef void (*tc_log_function)(void* user, tc_log_level level, const char* text);
TENSOR_C_API tc_status tc_set_log(tc_log_function function, void* user, int least);

/* ---- Options for opening: "device" (cpu, cuda, cuda:1), "dtype" (f32, bf16, i8, f16,
   tf32), "threads", "input" (image or tensor: whether a checkpoint's rule for pictures is needed),
   "program" (vit, detr, setr or depth, where config.json does not say), "max_pixels" of pictures,
   and the programs' own options without their dashes ("top", "threshold"). */

TENSOR_C_API tc_status tc_options_new(tc_options** options);
TENSOR_C_API tc_status tc_options_set(tc_options* options, const char* name, const char* value);
TENSOR_C_API tc_status tc_options_free(tc_options* options); /* NULL: TC_OK; so all tc_..._free */

/* ---- Models. `options` may be NULL. */

/* A checkpoint folder, a plan file or an ONNX file. */
TENSOR_C_API tc_status tc_model_open(const char* path, const tc_options* options, tc_model** model);
/* A plan, or an ONNX file. The bytes must stay as long as the model and what it returned. */
TENSOR_C_API tc_status tc_model_parse(const void* bytes, size_t size, const tc_options* options,
                                      tc_model** model);
TENSOR_C_API tc_status tc_model_free(tc_model* model);

/* Inputs and outputs in the order in which tc_model_run takes and returns them. Of a checkpoint,
   the first question about them compiles two sizes. Names stay as long as the model. */
TENSOR_C_API tc_status tc_model_input_count(const tc_model* model, size_t* count);
TENSOR_C_API tc_status tc_model_output_count(const tc_model* model, size_t* count);
TENSOR_C_API tc_status tc_model_input_name(const tc_model* model, size_t index, const char** name);
TENSOR_C_API tc_status tc_model_output_name(const tc_model* model, size_t index, const char** name);
/* The type, and the extents: -1 is any. At most `capacity` extents are written; `*rank` is how many
   there are, or -1 if any number may be. Pointers may be NULL. */
TENSOR_C_API tc_status tc_model_input_type(const tc_model* model, size_t index, tc_dtype* dtype,
                                           int* rank, int64_t* extents, size_t capacity);
TENSOR_C_API tc_status tc_model_output_type(const tc_model* model, size_t index, tc_dtype* dtype,
                                            int* rank, int64_t* extents, size_t capacity);
/* Whether an input may be left out: NULL in its place. */
TENSOR_C_API tc_status tc_model_input_is_optional(const tc_model* model, size_t index, int* yes);
/* Whether tc_model_look works. */
TENSOR_C_API tc_status tc_model_takes_pictures(const tc_model* model, int* yes);

/* One call, compiled for its sizes at the first call with them. `outputs` receives tensors that are
   the caller's to free, all of them or none; they are on the model's GPU where an input is. What
   writes inputs on a stream of the caller's must be done. */
TENSOR_C_API tc_status tc_model_run(tc_model* model, const tc_tensor* const* inputs,
                                    size_t input_count, tc_tensor** outputs, size_t output_count);
/* Hands the call to a stream of the model's GPU (CUstream, cudaStream_t; NULL: the default one) and
   returns: it begins when all is done that the stream was given before. Outputs are on the GPU, in
   the memory that tc_tensor_to_dlpack tells; they and the inputs are kept until the call is over.
   It waits where inputs lie on the host, or in other ways than row-major and aligned to 256 bytes.
   Since TC_ABI 2. */
TENSOR_C_API tc_status tc_model_enqueue(tc_model* model, const tc_tensor* const* inputs,
                                        size_t input_count, tc_tensor** outputs,
                                        size_t output_count, void* stream);
/* The bytes of a PNG, JPEG, BMP or WebP file. */
TENSOR_C_API tc_status tc_model_look(tc_model* model, const void* bytes, size_t size,
                                     tc_answer** answer);

/* ---- Answers: what a model sees in a picture */

/* {"findings": [{"label": "8", "id": 8, "score": 0.919}, ...]}, as the programs' --json. The text
   stays as long as the answer. */
TENSOR_C_API tc_status tc_answer_json(const tc_answer* answer, const char** text);
TENSOR_C_API tc_status tc_answer_count(const tc_answer* answer, size_t* count);
/* Finding `index`, best first; pointers may be NULL. `box` receives left, top, right and bottom in
   pixels, four zeros where the model gives no boxes. */
TENSOR_C_API tc_status tc_answer_finding(const tc_answer* answer, size_t index, const char** label,
                                         int64_t* id, double* score, double* box);
/* The class of every pixel, or how near it is (255 the nearest), u8 (height, width);
   TC_BAD_ARGUMENT for models that give neither. */
TENSOR_C_API tc_status tc_answer_classes(const tc_answer* answer, tc_tensor** classes);
TENSOR_C_API tc_status tc_answer_free(tc_answer* answer);

/* ---- Tensors */

/* Over the caller's memory. `strides` count elements; NULL: row-major. The memory must stay until
   `release` is called with `user`, once, by any thread, when nothing uses it any more (at once if
   this fails); without one, until all that was made of the tensor is freed. */
TENSOR_C_API tc_status tc_tensor_from_memory(void* data, int dtype, const int64_t* extents,
                                             size_t rank, const int64_t* strides,
                                             void (*release)(void* user), void* user,
                                             tc_tensor** tensor);
/* Takes `managed` over, also where it fails. On the CPU or a GPU of NVIDIA. */
TENSOR_C_API tc_status tc_tensor_from_dlpack(struct DLManagedTensor* managed, tc_tensor** tensor);
/* A capsule, whose deleter the caller calls. */
TENSOR_C_API tc_status tc_tensor_to_dlpack(const tc_tensor* tensor,
                                           struct DLManagedTensor** managed);
/* As tc_model_input_type. */
TENSOR_C_API tc_status tc_tensor_type(const tc_tensor* tensor, tc_dtype* dtype, int* rank,
                                      int64_t* extents, size_t capacity);
/* The number of the GPU that it lies on, -1 on the host. Since TC_ABI 2. */
TENSOR_C_API tc_status tc_tensor_device(const tc_tensor* tensor, int* gpu);
/* Elements in row-major order, `*size` bytes of them; they stay as long as the tensor.
   TC_BAD_ARGUMENT of a tensor on a GPU. */
TENSOR_C_API tc_status tc_tensor_data(const tc_tensor* tensor, const void** data, size_t* size);
TENSOR_C_API tc_status tc_tensor_free(tc_tensor* tensor);
/* Pixels of a picture: u8 (height, width, 3). */
TENSOR_C_API tc_status tc_tensor_from_picture(const void* bytes, size_t size, tc_tensor** tensor);
/* Bytes of an element, 0 of what is no type. */
TENSOR_C_API size_t tc_dtype_size(int dtype);

#ifdef __cplusplus
}
#endif

#endif
