// SPDX-License-Identifier: BSD-3-Clause
// The C interface of libscanrec, for bindings: pointers with strides, status codes, no exceptions.
// The library contains the kernels for several instruction sets and uses the best set that the CPU
// supports.
#ifndef SCANREC_C_SCANREC_H
#define SCANREC_C_SCANREC_H

#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define SCANREC_C_API __attribute__((visibility("default")))

/// The version of this interface. It increases whenever a struct or function below changes.
/// scanrec_c_version() returns the version of the loaded library.
#define SCANREC_C_VERSION 5

/// The status that a call returns. scanrec_last_error() returns its message; for GPU calls,
/// scanrec_cuda_last_error() does.
enum scanrec_status {
  SCANREC_OK = 0,
  SCANREC_BAD_ARGUMENT = 1,  ///< nothing has been written
  SCANREC_OUT_OF_MEMORY = 2,
  SCANREC_FAILED = 3
};

/// Element types. In linear and gated scans, initial and final states, their gradients and their
/// tangents have the type of the other arrays, or float32 if that is a 16-bit type.
enum scanrec_dtype {
  SCANREC_FLOAT32 = 0,
  SCANREC_FLOAT64 = 1,
  SCANREC_COMPLEX64 = 2,
  SCANREC_COMPLEX128 = 3,
  SCANREC_BFLOAT16 = 4,
  SCANREC_FLOAT16 = 5
};

/// Bits that mark the arrays of a linear scan that hold logarithms. The kernels exponentiate them
/// while reading: with both bits, state[t] = exp(gate[t]) * state[t-1] + exp(input[t]).
enum scanrec_logarithms { SCANREC_LOG_GATE = 1, SCANREC_LOG_INPUT = 2 };

typedef void (*scanrec_work)(int worker, void* context);
/// Runs work(0, context), ..., work(workers - 1, context), each exactly once, and returns after all
/// of them have returned. Workers may run in any order and on any threads, also on fewer threads
/// than workers.
typedef void (*scanrec_executor)(void* pool, int workers, scanrec_work work, void* context);

/// The properties that all arrays of a call share, and the options of the call. With an executor,
/// `threads` only matters if it is 1, which means one worker.
typedef struct scanrec_problem {
  int32_t dtype;              ///< enum scanrec_dtype
  int32_t rank;               ///< number of axes
  const int64_t* shape;       ///< extent of every axis
  int32_t axis;               ///< index of the time axis, 0 <= axis < rank
  int32_t reverse;            ///< 1: state[t] depends on state[t+1]
  int32_t no_conjugate;       ///< 1: adjoints do not conjugate (JAX); 0: they do (PyTorch)
  int32_t threads;            ///< maximum, fewer for small problems; 0: one per CPU
  int32_t more_resets;        ///< 1: `resets` has one step more than `shape`
  int32_t logarithms;         ///< bits of scanrec_logarithms in linear_scan and its vjp; else 0
  double forget_bias;         ///< added to forget gates before activation; linear scans: 0
  scanrec_executor executor;  ///< runs the workers; null: the library's threads
  void* pool;                 ///< passed to the executor
} scanrec_problem;

/// An array: a pointer to its first element, and a stride in elements for every axis. The axes are
/// those of scanrec_problem, or those in the comments of other structs. A stride of 0 broadcasts an
/// array that is read; a gradient receives the sum over that axis. In linear and gated scans, the
/// time strides of initial and final states and of their derivatives are ignored. An array with
/// null strides is absent.
typedef struct scanrec_array {
  void* data;
  const int64_t* strides;
} scanrec_array;

/// Arrays of scanrec_linear_scan. One of state and final_state may be absent.
typedef struct scanrec_scan_arrays {
  scanrec_array gate, input;
  scanrec_array initial_state;  ///< absent: 0
  /// Reset mask, bytes: 1 where a sequence starts, else 0; absent: no resets. `more_resets` adds a
  /// step after the last one. A reset there makes a reverse scan ignore its initial state.
  scanrec_array resets;
  scanrec_array state, final_state;
} scanrec_scan_arrays;

/// Arrays of scanrec_linear_scan_vjp. A gradient that is read counts as 0 if absent; a gradient
/// that is written may be absent. `state` is read only for gate_grad. `input` is read only if it
/// holds logarithms and input_grad is present.
typedef struct scanrec_vjp_arrays {
  scanrec_array gate, input, initial_state, resets, state;
  scanrec_array state_grad, final_grad;
  scanrec_array gate_grad, input_grad, initial_grad;
} scanrec_vjp_arrays;

/// Arrays of scanrec_linear_scan_jvp. A tangent that is read counts as 0 if absent; a tangent that
/// is written may be absent. `state` is read only if gate_tangent is present.
typedef struct scanrec_jvp_arrays {
  scanrec_array gate, initial_state, resets, state;
  scanrec_array gate_tangent, input_tangent, initial_tangent;
  scanrec_array state_tangent, final_tangent;
} scanrec_jvp_arrays;

/// Arrays of scanrec_gated_scan, which computes QRNN pooling. The pooling kind follows from the
/// arrays that are present. f-pooling has only a forget gate, and its outputs are the states;
/// fo-pooling also has an output gate; ifo-pooling has all three gates.
typedef struct scanrec_gated_arrays {
  scanrec_array candidate, forget_gate, output_gate, input_gate;  ///< before their activations
  scanrec_array initial_state;                                    ///< absent: 0
  scanrec_array resets;                                           ///< as in scanrec_scan_arrays
  scanrec_array zoneout;  ///< bytes: 1 where the state keeps its value, else 0; may be absent
  scanrec_array output, final_state;
  scanrec_array state;  ///< stored for the adjoint; may be absent, see scanrec_gated_vjp_arrays
  /// An alternative to `state`: stores the state before each interval of 128 steps except the first
  /// interval, in the type of initial states. Intervals are counted from the end of the scan, so
  /// the first one may be shorter. The time axis has (time - 1) / 128 checkpoints.
  scanrec_array checkpoints;
} scanrec_gated_arrays;

/// Arrays of scanrec_gated_scan_vjp. `state` is the array that the forward call stored, or its
/// output if the outputs are the states. If `state` is absent, the adjoint recomputes the states
/// from `checkpoints`, which may be absent for up to 128 steps. Only the gradients of the forget
/// gate and the output gate depend on states. A gradient that is read counts as 0 if absent; a
/// gradient that is written may be absent.
typedef struct scanrec_gated_vjp_arrays {
  scanrec_array candidate, forget_gate, output_gate, input_gate;
  scanrec_array initial_state, resets, zoneout;
  scanrec_array state, checkpoints;
  scanrec_array output_grad, final_grad;
  scanrec_array candidate_grad, forget_gate_grad, output_gate_grad, input_gate_grad;
  scanrec_array initial_grad;
} scanrec_gated_vjp_arrays;

/// The properties that all arrays of a selective scan share, and the options of the call.
typedef struct scanrec_selective_problem {
  /// The type of the states, of a, and of b and c if they are per channel: SCANREC_FLOAT32,
  /// SCANREC_FLOAT64, SCANREC_COMPLEX64 or SCANREC_COMPLEX128. The real type of the problem is this
  /// type, or the type of its real and imaginary parts if it is complex.
  int32_t dtype;
  int64_t batch, time, channel;           ///< extents of u
  int64_t states;                         ///< states of every channel
  int64_t groups;                         ///< groups of channels with the same b and c per step
  int32_t b_of_steps, c_of_steps;         ///< 1: per step; 0: per channel
  int32_t softplus;                       ///< step size: delta + delta_bias; 1: its softplus
  int32_t reverse, threads, more_resets;  ///< as in scanrec_problem
  scanrec_executor executor;
  void* pool;
} scanrec_selective_problem;

/// An array with its own element type: the real type of the problem or, if that is float32, a
/// 16-bit type. Exception: b and c per channel have the type of the problem.
typedef struct scanrec_typed_array {
  void* data;
  const int64_t* strides;
  int32_t dtype;
} scanrec_typed_array;

/// Arrays of scanrec_selective_scan. The comments list the axes of each array, one per stride.
/// Arrays without a type field: resets are bytes; d, delta_bias and intervals have the real type of
/// the problem; all others have its type.
typedef struct scanrec_selective_arrays {
  scanrec_typed_array u, delta;  ///< batch, time, channel
  scanrec_array a;               ///< channel, state
  /// Per step: batch, time, group, state. Per channel: channel, state, in the type of the problem.
  /// A complex b or c per step is passed as real numbers: each imaginary part follows its real
  /// part, dtype is the real type, and strides count real numbers.
  scanrec_typed_array b, c;
  scanrec_array d;              ///< D: channel; absent: 0
  scanrec_typed_array z;        ///< batch, time, channel; absent: outputs are not gated
  scanrec_array delta_bias;     ///< channel; absent: 0
  scanrec_array intervals;      ///< factors of the step sizes: batch, time; absent: 1
  scanrec_array initial_state;  ///< batch, channel, state; absent: 0
  scanrec_array resets;         ///< bytes, as in scanrec_scan_arrays: batch, time, channel
  scanrec_typed_array out;      ///< batch, time, channel
  scanrec_array final_state;    ///< batch, channel, state
  /// Axes: batch, checkpoint, channel, state. Stores (time - 1) / 128 checkpoints for the adjoint.
  scanrec_array checkpoints;
} scanrec_selective_arrays;

/// Arrays of scanrec_selective_scan_vjp. A gradient that is read counts as 0 if absent; a gradient
/// that is written may be absent. A gradient has the axes of the array to which it belongs; the
/// gradients of b and c are per step or per channel like b and c.
typedef struct scanrec_selective_vjp_arrays {
  scanrec_typed_array u, delta;
  scanrec_array a;
  scanrec_typed_array b, c;
  scanrec_array d;
  scanrec_typed_array z;
  scanrec_array delta_bias, intervals, initial_state, resets;
  scanrec_array checkpoints;  ///< those of the forward call; absent: recomputed
  scanrec_typed_array out_grad;
  scanrec_array final_grad;
  scanrec_typed_array u_grad, delta_grad;
  scanrec_array a_grad;
  scanrec_typed_array b_grad, c_grad;
  scanrec_array d_grad;
  scanrec_typed_array z_grad;
  scanrec_array delta_bias_grad, intervals_grad, initial_grad;
} scanrec_selective_vjp_arrays;

/// The properties that all arrays of a causal convolution share, and the options of the call.
typedef struct scanrec_causal_conv1d_problem {
  int32_t dtype;                 ///< compute type: SCANREC_FLOAT32 or SCANREC_FLOAT64
  int64_t batch, time, channel;  ///< extents of x
  int64_t width;                 ///< taps of every channel
  /// Steps of initial_state and initial_grad, and steps of final_state and final_grad. If such an
  /// array is present, it has width - 1 steps or more.
  int64_t initial_steps, final_steps;
  int32_t silu;     ///< 1: outputs are SiLU of the sums of products; 0: the sums
  int32_t threads;  ///< as in scanrec_problem
  scanrec_executor executor;
  void* pool;
} scanrec_causal_conv1d_problem;

/// Arrays of scanrec_causal_conv1d. The comments list the axes of each array, one per stride. The
/// weight and the bias have the type of the problem.
typedef struct scanrec_causal_conv1d_arrays {
  scanrec_typed_array x;              ///< batch, time, channel
  scanrec_array weight;               ///< channel, tap; the tap of the oldest step first
  scanrec_array bias;                 ///< channel; absent: 0
  scanrec_typed_array initial_state;  ///< inputs before step 0: batch, time, channel; absent: 0
  scanrec_array resets;               ///< bytes, 1 where a sequence starts: batch, time
  scanrec_typed_array out;            ///< batch, time, channel
  scanrec_typed_array final_state;    ///< last inputs: batch, time, channel; may be initial_state
} scanrec_causal_conv1d_arrays;

/// Arrays of scanrec_causal_conv1d_vjp. A gradient that is read counts as 0 if absent; a gradient
/// that is written may be absent.
typedef struct scanrec_causal_conv1d_vjp_arrays {
  scanrec_typed_array x;
  scanrec_array weight, bias;
  scanrec_typed_array initial_state;
  scanrec_array resets;
  scanrec_typed_array out_grad, final_grad;
  scanrec_typed_array x_grad;
  scanrec_array weight_grad, bias_grad;
  scanrec_typed_array initial_grad;
} scanrec_causal_conv1d_vjp_arrays;

/// state[t] = gate[t] * state[t-1] + input[t], as scanrec::linear_scan. The two calls have the same
/// rules for aliasing and the same errors. With logarithms, this call follows scanrec::gated_scan
/// with the cell log_space: the element type must be real, and no array may overlap `state`.
SCANREC_C_API int scanrec_linear_scan(const scanrec_problem* problem,
                                      const scanrec_scan_arrays* arrays);
/// The adjoint, as scanrec::linear_scan_vjp. With logarithms, `gate_grad` may be `gate` and
/// `input_grad` may be `input`.
SCANREC_C_API int scanrec_linear_scan_vjp(const scanrec_problem* problem,
                                          const scanrec_vjp_arrays* arrays);
/// The tangent, as scanrec::linear_scan_jvp.
SCANREC_C_API int scanrec_linear_scan_jvp(const scanrec_problem* problem,
                                          const scanrec_jvp_arrays* arrays);

/// QRNN pooling with tanh and sigmoid, as scanrec::gated_scan with the cells of cells/qrnn.hpp.
/// Element types must be real.
SCANREC_C_API int scanrec_gated_scan(const scanrec_problem* problem,
                                     const scanrec_gated_arrays* arrays);
/// The adjoint, as scanrec::gated_scan_vjp.
SCANREC_C_API int scanrec_gated_scan_vjp(const scanrec_problem* problem,
                                         const scanrec_gated_vjp_arrays* arrays);

/// The recurrence of Mamba, as scanrec::selective_scan.
SCANREC_C_API int scanrec_selective_scan(const scanrec_selective_problem* problem,
                                         const scanrec_selective_arrays* arrays);
/// The adjoint, as scanrec::selective_scan_vjp.
SCANREC_C_API int scanrec_selective_scan_vjp(const scanrec_selective_problem* problem,
                                             const scanrec_selective_vjp_arrays* arrays);

/// A depthwise convolution along time, as scanrec::causal_conv1d.
SCANREC_C_API int scanrec_causal_conv1d(const scanrec_causal_conv1d_problem* problem,
                                        const scanrec_causal_conv1d_arrays* arrays);
/// The adjoint, as scanrec::causal_conv1d_vjp.
SCANREC_C_API int scanrec_causal_conv1d_vjp(const scanrec_causal_conv1d_problem* problem,
                                            const scanrec_causal_conv1d_vjp_arrays* arrays);

/// The message of the last call of this thread that did not return SCANREC_OK. For
/// SCANREC_BAD_ARGUMENT it reads "<call>: argument '<argument>': <reason>".
SCANREC_C_API const char* scanrec_last_error(void);
/// The argument and the reason of that message, for bindings whose arguments have other names. Both
/// are empty unless the status was SCANREC_BAD_ARGUMENT. Names of other arguments in the reason are
/// in single quotes.
SCANREC_C_API const char* scanrec_last_error_argument(void);
SCANREC_C_API const char* scanrec_last_error_reason(void);

/// The SCANREC_C_VERSION of the loaded library.
SCANREC_C_API int scanrec_c_version(void);
/// The version of the library, such as "0.1.0".
SCANREC_C_API const char* scanrec_version(void);
/// The instruction set in use: "x86-64-v2", "x86-64-v3", "x86-64-v4" or "native". It is chosen on
/// first use. The environment variable SCANREC_ISA may select another one that the CPU supports.
/// Null, with a message in scanrec_last_error(), if the library has no suitable set.
SCANREC_C_API const char* scanrec_instruction_set(void);
/// The maximum number of threads of the library's thread pool.
SCANREC_C_API int scanrec_threads(void);

#if defined(__cplusplus)
}
#endif

#endif
