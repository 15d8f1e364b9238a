// SPDX-License-Identifier: BSD-3-Clause
// The C interface of libscanrec, for bindings: arrays of any number of axes, status codes, no
// exceptions. The library is built from the headers for several instruction sets and uses the best
// one that this CPU has.
#ifndef SCANREC_C_SCANREC_H
#define SCANREC_C_SCANREC_H

#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define SCANREC_C_API __attribute__((visibility("default")))

/// Grows whenever a struct or a function below changes; scanrec_c_version() says the library's.
#define SCANREC_C_VERSION 5

/// What a call returns; scanrec_last_error() has the words.
enum scanrec_status {
  SCANREC_OK = 0,
  SCANREC_BAD_ARGUMENT = 1,  ///< nothing has been written
  SCANREC_OUT_OF_MEMORY = 2,
  SCANREC_FAILED = 3
};

/// Element types. States at the edges (initial, final, their gradients and tangents) of the 16-bit
/// types are float32, which these compute in.
enum scanrec_dtype {
  SCANREC_FLOAT32 = 0,
  SCANREC_FLOAT64 = 1,
  SCANREC_COMPLEX64 = 2,
  SCANREC_COMPLEX128 = 3,
  SCANREC_BFLOAT16 = 4,
  SCANREC_FLOAT16 = 5
};

/// Bits that say which arrays of a linear scan hold logarithms. The kernels exponentiate them while
/// they read them: state[t] = exp(gate[t]) * state[t-1] + exp(input[t]) with both bits.
enum scanrec_logarithms { SCANREC_LOG_GATE = 1, SCANREC_LOG_INPUT = 2 };

/// Runs work(0, context), ..., work(workers - 1, context), each exactly once, and returns when all
/// have returned; any order, any threads, fewer threads than workers.
typedef void (*scanrec_work)(int worker, void* context);
typedef void (*scanrec_executor)(void* pool, int workers, scanrec_work work, void* context);

/// What all arrays of a call have in common.
typedef struct scanrec_problem {
  int32_t dtype;         ///< enum scanrec_dtype
  int32_t rank;          ///< number of axes
  const int64_t* shape;  ///< of every axis
  int32_t axis;          ///< which of them is time, 0 <= axis < rank
  int32_t reverse;       ///< 1: state[t] depends on state[t+1]
  int32_t no_conjugate;  ///< 1: adjoints do not conjugate (JAX); 0: they do (PyTorch)
  int32_t threads;       ///< at most so many; 0: one per CPU, fewer on small problems
  int32_t more_resets;   ///< 1: resets have one step more than `shape` says
  int32_t logarithms;    ///< enum scanrec_logarithms, of linear scans and their vjp; 0 elsewhere
  double forget_bias;    ///< added to the forget gates of gated scans; 0 elsewhere
  scanrec_executor executor;  ///< who runs the workers; null: threads of the library
  void* pool;                 ///< passed to the executor
} scanrec_problem;

/// An array: where it begins, and a stride in elements for every axis of the problem. A stride of 0
/// broadcasts an array that is read, and has a gradient receive the sum over the axis. States at
/// the edges have no time axis: their stride there is ignored. Without strides there is no array.
typedef struct scanrec_array {
  void* data;
  const int64_t* strides;
} scanrec_array;

/// Arrays of scanrec_linear_scan. Either state or final_state may be absent.
typedef struct scanrec_scan_arrays {
  scanrec_array gate, input;
  scanrec_array initial_state;  ///< absent: 0
  /// Bytes, 0 or 1: a sequence starts here; absent: nowhere. problem.more_resets adds
  /// a step after the last, whose reset ends a reverse scan's use of its initial state.
  scanrec_array resets;
  scanrec_array state, final_state;
} scanrec_scan_arrays;

/// Arrays of scanrec_linear_scan_vjp. Absent gradients are zero, or not computed. `state` is read
/// for gate_grad alone, `input` for input_grad alone, and only if it holds logarithms.
typedef struct scanrec_vjp_arrays {
  scanrec_array gate, input, initial_state, resets, state;
  scanrec_array state_grad, final_grad;
  scanrec_array gate_grad, input_grad, initial_grad;
} scanrec_vjp_arrays;

/// Arrays of scanrec_linear_scan_jvp. Absent tangents are zero, or not computed; `state` is read
/// with gate_tangent alone.
typedef struct scanrec_jvp_arrays {
  scanrec_array gate, initial_state, resets, state;
  scanrec_array gate_tangent, input_tangent, initial_tangent;
  scanrec_array state_tangent, final_tangent;
} scanrec_jvp_arrays;

/// Arrays of scanrec_gated_scan, which is QRNN pooling. The present arrays say which kind:
/// f-pooling has no output_gate, and its outputs are the states; fo-pooling has no input_gate;
/// ifo-pooling has all four.
typedef struct scanrec_gated_arrays {
  scanrec_array candidate, forget_gate, output_gate, input_gate;  ///< before their activations
  scanrec_array initial_state;                                    ///< absent: 0
  scanrec_array resets;                                           ///< as in scanrec_scan_arrays
  scanrec_array zoneout;  ///< bytes, 0 or 1: the state stays as it was; absent: nowhere
  scanrec_array output, final_state;
  scanrec_array state;  ///< kept for the adjoint; absent: for none, or where outputs are the states
  /// Kept for the adjoint instead: the states before every 128th step, counted from the end of the
  /// scan, in the type of the edges. There are (time - 1) / 128 of them along the time axis.
  scanrec_array checkpoints;
} scanrec_gated_arrays;

/// Arrays of scanrec_gated_scan_vjp. `state` is what the forward call kept, or its outputs where
/// those are the states. Without it the adjoint reads `checkpoints`, of which there are none up to
/// 128 steps, and recomputes the states. Only the gradients of forget and output gate depend on
/// states. Absent gradients are zero, or not computed.
typedef struct scanrec_gated_vjp_arrays {
  scanrec_array candidate, forget_gate, output_gate, input_gate;
  scanrec_array initial_state, resets, zoneout;
  scanrec_array state, checkpoints;
  scanrec_array output_grad, final_grad;
  scanrec_array candidate_grad, forget_gate_grad, output_gate_grad, input_gate_grad;
  scanrec_array initial_grad;
} scanrec_gated_vjp_arrays;

/// What all arrays of a selective scan have in common.
typedef struct scanrec_selective_problem {
  /// The type of the states: SCANREC_FLOAT32, SCANREC_FLOAT64, SCANREC_COMPLEX64 or
  /// SCANREC_COMPLEX128. Everything else is computed in its real type.
  int32_t dtype;
  int64_t batch, time, channel;           ///< of u
  int64_t states;                         ///< of every channel
  int64_t groups;                         ///< of channels that share a B and C of every step
  int32_t b_of_steps, c_of_steps;         ///< 1: of every step; 0: of every channel
  int32_t softplus;                       ///< 1: steps are softplus(delta + delta_bias); 0: the sum
  int32_t reverse, threads, more_resets;  ///< as in scanrec_problem
  scanrec_executor executor;
  void* pool;
} scanrec_selective_problem;

/// An array with an element type of its own: the real type of the problem, and where that is
/// float32, one of 16 bits, too.
typedef struct scanrec_typed_array {
  void* data;
  const int64_t* strides;
  int32_t dtype;
} scanrec_typed_array;

/// Arrays of scanrec_selective_scan, with a stride for every axis that is named here. Arrays
/// without a type of their own have the problem's type, but d, delta_bias and intervals its real
/// type.
typedef struct scanrec_selective_arrays {
  scanrec_typed_array u, delta;  ///< batch, time, channel
  scanrec_array a;               ///< channel, state
  /// Of every step: batch, time, group, state; of every channel: channel, state, in the type of the
  /// problem. Complex ones of every step are typed and have strides as their real parts, each of
  /// which the imaginary part follows.
  scanrec_typed_array b, c;
  scanrec_array d;              ///< D: channel; absent: 0
  scanrec_typed_array z;        ///< batch, time, channel; absent: outputs are not gated
  scanrec_array delta_bias;     ///< channel; absent: 0
  scanrec_array intervals;      ///< factors of steps: batch, time; absent: 1
  scanrec_array initial_state;  ///< batch, channel, state; absent: 0
  scanrec_array resets;         ///< bytes, as in scanrec_scan_arrays: batch, time, channel
  scanrec_typed_array out;      ///< batch, time, channel
  scanrec_array final_state;    ///< batch, channel, state
  /// Batch, checkpoint, channel, state: (time - 1) / 128 of them are kept for the adjoint.
  scanrec_array checkpoints;
} scanrec_selective_arrays;

/// Arrays of scanrec_selective_scan_vjp. Absent gradients are zero, or not computed. A
/// gradient has the axes of its array; the gradients of b and c vary in time as b and c do.
typedef struct scanrec_selective_vjp_arrays {
  scanrec_typed_array u, delta;
  scanrec_array a;
  scanrec_typed_array b, c;
  scanrec_array d;
  scanrec_typed_array z;
  scanrec_array delta_bias, intervals, initial_state, resets;
  scanrec_array checkpoints;  ///< what the forward call kept; absent: made again
  scanrec_typed_array out_grad;
  scanrec_array final_grad;
  scanrec_typed_array u_grad, delta_grad;
  scanrec_array a_grad;
  scanrec_typed_array b_grad, c_grad;
  scanrec_array d_grad;
  scanrec_typed_array z_grad;
  scanrec_array delta_bias_grad, intervals_grad, initial_grad;
} scanrec_selective_vjp_arrays;

/// What all arrays of a causal convolution have in common.
typedef struct scanrec_causal_conv1d_problem {
  int32_t dtype;                 ///< that is computed in: SCANREC_FLOAT32 or SCANREC_FLOAT64
  int64_t batch, time, channel;  ///< of x
  int64_t width;                 ///< taps of every channel
  /// Steps of the states, width - 1 or more: of initial_state and initial_grad, and of final_state
  /// and final_grad.
  int64_t initial_steps, final_steps;
  int32_t silu;     ///< 1: SiLU of the sums; 0: the sums
  int32_t threads;  ///< as in scanrec_problem
  scanrec_executor executor;
  void* pool;
} scanrec_causal_conv1d_problem;

/// Arrays of scanrec_causal_conv1d, with a stride for every axis that is named here. Arrays without
/// a type of their own have the problem's type.
typedef struct scanrec_causal_conv1d_arrays {
  scanrec_typed_array x;              ///< batch, time, channel
  scanrec_array weight;               ///< channel, tap: that of the oldest step first
  scanrec_array bias;                 ///< channel; absent: 0
  scanrec_typed_array initial_state;  ///< the inputs before the first step; absent: 0
  scanrec_array resets;               ///< bytes, 0 or 1: batch, time; a sequence starts here
  scanrec_typed_array out;            ///< batch, time, channel
  scanrec_typed_array final_state;    ///< batch, time, channel; may be initial_state
} scanrec_causal_conv1d_arrays;

/// Arrays of scanrec_causal_conv1d_vjp. Absent gradients are zero, or not computed.
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

/// state[t] = gate[t] * state[t-1] + input[t]; contracts as scanrec::linear_scan. Logarithms have
/// real element types, and contracts as scanrec::gated_scan with the cell log_space: no array
/// shares the memory of `state`.
SCANREC_C_API int scanrec_linear_scan(const scanrec_problem* problem,
                                      const scanrec_scan_arrays* arrays);
/// Its adjoint, as scanrec::linear_scan_vjp. With logarithms, `gate_grad` and `input_grad` may
/// share the memory of `gate` and `input`.
SCANREC_C_API int scanrec_linear_scan_vjp(const scanrec_problem* problem,
                                          const scanrec_vjp_arrays* arrays);
/// Its tangent, as scanrec::linear_scan_jvp.
SCANREC_C_API int scanrec_linear_scan_jvp(const scanrec_problem* problem,
                                          const scanrec_jvp_arrays* arrays);

/// QRNN pooling with tanh and sigmoid, as scanrec::gated_scan with the cells of cells/qrnn.hpp.
/// Real element types.
SCANREC_C_API int scanrec_gated_scan(const scanrec_problem* problem,
                                     const scanrec_gated_arrays* arrays);
/// Its adjoint, as scanrec::gated_scan_vjp.
SCANREC_C_API int scanrec_gated_scan_vjp(const scanrec_problem* problem,
                                         const scanrec_gated_vjp_arrays* arrays);

/// Mamba's recurrence, as scanrec::selective_scan.
SCANREC_C_API int scanrec_selective_scan(const scanrec_selective_problem* problem,
                                         const scanrec_selective_arrays* arrays);
/// Its adjoint, as scanrec::selective_scan_vjp.
SCANREC_C_API int scanrec_selective_scan_vjp(const scanrec_selective_problem* problem,
                                             const scanrec_selective_vjp_arrays* arrays);

/// A depthwise convolution along time, as scanrec::causal_conv1d.
SCANREC_C_API int scanrec_causal_conv1d(const scanrec_causal_conv1d_problem* problem,
                                        const scanrec_causal_conv1d_arrays* arrays);
/// Its adjoint, as scanrec::causal_conv1d_vjp.
SCANREC_C_API int scanrec_causal_conv1d_vjp(const scanrec_causal_conv1d_problem* problem,
                                            const scanrec_causal_conv1d_vjp_arrays* arrays);

/// What was wrong with the last call of this thread that did not return SCANREC_OK. For
/// SCANREC_BAD_ARGUMENT the text is "<call>: argument '<argument>': <reason>".
SCANREC_C_API const char* scanrec_last_error(void);
/// The argument and the reason in that text, for bindings that name arguments otherwise; empty for
/// other errors. The reason has the names of further arguments in single quotes.
SCANREC_C_API const char* scanrec_last_error_argument(void);
SCANREC_C_API const char* scanrec_last_error_reason(void);

/// SCANREC_C_VERSION of the library.
SCANREC_C_API int scanrec_c_version(void);
/// "0.1.0"
SCANREC_C_API const char* scanrec_version(void);
/// The instruction set in use: "x86-64-v2", "x86-64-v3", "x86-64-v4" or "native". Chosen when first
/// asked for; the environment variable SCANREC_ISA may name a lesser one.
SCANREC_C_API const char* scanrec_instruction_set(void);
/// Threads that the library's own pool has at most.
SCANREC_C_API int scanrec_threads(void);

#if defined(__cplusplus)
}
#endif

#endif
