// SPDX-License-Identifier: BSD-3-Clause
// Declares the part of XLA's foreign function interface that the handlers use, so that the package
// builds without jaxlib. The members of these structs are laid out as in XLA's C header. Versions
// 0.1 to 0.5 of the interface (jaxlib 0.5.3 to 0.12) differ only in members that newer versions
// append. A test compares the layout with XLA's header in each jaxlib that the package is tested
// with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace scanrec::native::xla {

/// The versions of the interface whose layout has been compared with these structs.
inline constexpr int major_version = 0, oldest_minor_version = 1, newest_minor_version = 5;

/// Values of the interface's enums.
enum data_type : int {
  pred = 1,
  s64 = 5,
  f16 = 10,
  f32 = 11,
  f64 = 12,
  c64 = 15,
  bf16 = 16,
  c128 = 18
};
enum error_code : int { invalid_argument = 3, resource_exhausted = 8, internal = 13 };
enum attribute_type : int { array_attribute = 1, scalar_attribute = 3 };
enum extension_type : int { asks_for_metadata = 1 };
enum stage : int { execute = 3 };

struct error;    // opaque
struct context;  // opaque

struct extension {
  std::size_t struct_size;
  int type;
  extension* next;
};

/// The first members of most structs.
struct header {
  std::size_t struct_size;
  extension* extensions;
};

struct version {
  header head;
  int major, minor;
};

struct metadata {
  std::size_t struct_size;
  version api_version;
  std::uint32_t traits;
};
struct metadata_extension {
  extension base;
  metadata* data;
};

struct buffer {
  header head;
  int dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dimensions;
};

/// The operands or the results of a call.
struct buffers {
  header head;
  std::int64_t size;
  int* types;
  void** items;
};

struct text {
  const char* data;
  std::size_t size;
};
struct scalar {
  int dtype;
  void* value;
};
struct array {
  int dtype;
  std::size_t size;
  void* data;
};

/// The attributes of a call, sorted by name.
struct attributes {
  header head;
  std::int64_t size;
  int* types;
  text** names;
  void** values;
};

struct error_create_args {
  header head;
  const char* message;
  int code;
};
struct error_destroy_args {
  header head;
  error* which;
};
struct stream_get_args {
  header head;
  context* ctx;
  void* stream;
};
struct memory_allocate_args {
  header head;
  context* ctx;
  std::size_t size, alignment;
  void* data;
};
struct memory_free_args {
  header head;
  context* ctx;
  std::size_t size;
  void* data;
};
struct schedule_args {
  header head;
  context* ctx;
  void (*task)(void* data);
  void* data;
};
struct num_threads_args {
  header head;
  context* ctx;
  std::int64_t* num_threads;
};

/// The functions of the runtime.
struct api {
  using unused = void (*)();
  header head;
  version api_version;
  void* internal_api;
  error* (*error_create)(error_create_args*);
  unused error_get_message;
  void (*error_destroy)(error_destroy_args*);
  unused handler_register;
  error* (*stream_get)(stream_get_args*);
  unused type_id_register, context_get, state_set, state_get;
  error* (*memory_allocate)(memory_allocate_args*);
  error* (*memory_free)(memory_free_args*);
  error* (*schedule)(schedule_args*);
  error* (*num_threads)(num_threads_args*);
};

/// A call of a handler.
struct call_frame {
  header head;
  const xla::api* api;
  context* ctx;
  int stage;
  buffers operands;
  buffers results;
  xla::attributes attributes;
};

}  // namespace scanrec::native::xla
