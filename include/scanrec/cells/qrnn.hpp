// SPDX-License-Identifier: BSD-3-Clause
// QRNN pooling (Bradbury et al., Quasi-Recurrent Neural Networks, 2017, section 2.1) as cells of a
// gated scan. In the formulas, z is the candidate, and f, o and i are the forget, output and input
// gates, all after their activations.
#pragma once

#include <array>

#include <scanrec/cells/activation.hpp>
#include <scanrec/cells/cell.hpp>
#include <scanrec/detail/simd/lanes.hpp>

namespace scanrec::inline SCANREC_ABI {

/// f-pooling: state = f * state + (1 - f) * z; the state is the output.
template <class Candidate = activation::tanh, class Gate = activation::sigmoid>
struct f_pooling {
  using outputs = output_is_state;
  template <class View>
  struct arrays {
    View candidate, forget_gate;
  };
  static constexpr std::array names{array_name{"candidate", "candidate_grad"},
                                    array_name{"forget_gate", "forget_gate_grad"}};
  double forget_bias = 0;  ///< added to the pre-activation of the forget gate

  template <class Lane>
  struct step {
    activated<Lane> z, f;
  };
  template <class Lane>
  SCANREC_HD SCANREC_INLINE step<Lane> load(Lane candidate, Lane forget) const {
    return {Candidate::of(candidate), Gate::of(biased(forget, forget_bias))};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE affine<Lane> map(const step<Lane>& s) {
    return {s.f.value, simd::mul(s.f.complement, s.z.value)};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE std::array<Lane, 2> gradients(const step<Lane>& s,
                                                                 const cell_cotangents<Lane>& d) {
    return {through(d.state, s.f.complement, s.z.slope),
            through(d.state, d.before - s.z.value, s.f.slope)};
  }
};

/// fo-pooling: state = f * state + (1 - f) * z, output = o * state.
template <class Candidate = activation::tanh, class Gate = activation::sigmoid>
struct fo_pooling {
  using outputs = output_is_gated<2>;
  template <class View>
  struct arrays {
    View candidate, forget_gate, output_gate;
  };
  static constexpr std::array names{array_name{"candidate", "candidate_grad"},
                                    array_name{"forget_gate", "forget_gate_grad"},
                                    array_name{"output_gate", "output_gate_grad"}};
  double forget_bias = 0;  ///< added to the pre-activation of the forget gate

  template <class Lane>
  struct step {
    activated<Lane> z, f, o;
  };
  template <class Lane>
  SCANREC_HD SCANREC_INLINE step<Lane> load(Lane candidate, Lane forget, Lane output) const {
    return {Candidate::of(candidate), Gate::of(biased(forget, forget_bias)), Gate::of(output)};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE affine<Lane> map(const step<Lane>& s) {
    return {s.f.value, simd::mul(s.f.complement, s.z.value)};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE std::array<Lane, 3> gradients(const step<Lane>& s,
                                                                 const cell_cotangents<Lane>& d) {
    return {through(d.state, s.f.complement, s.z.slope),
            through(d.state, d.before - s.z.value, s.f.slope),
            through(d.output, d.after, s.o.slope)};
  }
};

/// ifo-pooling: state = f * state + i * z, output = o * state.
template <class Candidate = activation::tanh, class Gate = activation::sigmoid>
struct ifo_pooling {
  using outputs = output_is_gated<2>;
  template <class View>
  struct arrays {
    View candidate, forget_gate, output_gate, input_gate;
  };
  static constexpr std::array names{
      array_name{"candidate", "candidate_grad"}, array_name{"forget_gate", "forget_gate_grad"},
      array_name{"output_gate", "output_gate_grad"}, array_name{"input_gate", "input_gate_grad"}};
  double forget_bias = 0;  ///< added to the pre-activation of the forget gate

  template <class Lane>
  struct step {
    activated<Lane> z, f, o, i;
  };
  template <class Lane>
  SCANREC_HD SCANREC_INLINE step<Lane> load(Lane candidate, Lane forget, Lane output,
                                            Lane input) const {
    return {Candidate::of(candidate), Gate::of(biased(forget, forget_bias)), Gate::of(output),
            Gate::of(input)};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE affine<Lane> map(const step<Lane>& s) {
    return {s.f.value, simd::mul(s.i.value, s.z.value)};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE std::array<Lane, 4> gradients(const step<Lane>& s,
                                                                 const cell_cotangents<Lane>& d) {
    return {through(d.state, s.i.value, s.z.slope), through(d.state, d.before, s.f.slope),
            through(d.output, d.after, s.o.slope), through(d.state, s.z.value, s.i.slope)};
  }
};

/// Gated accumulation: state = f * state + z; the state is the output.
template <class Candidate = activation::identity, class Gate = activation::hard_sigmoid>
struct gated_accumulation {
  using outputs = output_is_state;
  template <class View>
  struct arrays {
    View candidate, forget_gate;
  };
  static constexpr std::array names{array_name{"candidate", "candidate_grad"},
                                    array_name{"forget_gate", "forget_gate_grad"}};
  double forget_bias = 0;  ///< added to the pre-activation of the forget gate

  template <class Lane>
  struct step {
    activated<Lane> z, f;
  };
  template <class Lane>
  SCANREC_HD SCANREC_INLINE step<Lane> load(Lane candidate, Lane forget) const {
    return {Candidate::of(candidate), Gate::of(biased(forget, forget_bias))};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE affine<Lane> map(const step<Lane>& s) {
    return {s.f.value, s.z.value};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE std::array<Lane, 2> gradients(const step<Lane>& s,
                                                                 const cell_cotangents<Lane>& d) {
    return {simd::mul(d.state, s.z.slope), through(d.state, d.before, s.f.slope)};
  }
};

// ---- cells for 16-bit elements ----------------------------------------------------------------

template <class Candidate, class Gate>
struct rough_cell<f_pooling<Candidate, Gate>> {
  using type = f_pooling<activation::rough<Candidate>, activation::rough<Gate>>;
  static type of(const f_pooling<Candidate, Gate>& cell) { return {cell.forget_bias}; }
};
template <class Candidate, class Gate>
struct rough_cell<fo_pooling<Candidate, Gate>> {
  using type = fo_pooling<activation::rough<Candidate>, activation::rough<Gate>>;
  static type of(const fo_pooling<Candidate, Gate>& cell) { return {cell.forget_bias}; }
};
template <class Candidate, class Gate>
struct rough_cell<ifo_pooling<Candidate, Gate>> {
  using type = ifo_pooling<activation::rough<Candidate>, activation::rough<Gate>>;
  static type of(const ifo_pooling<Candidate, Gate>& cell) { return {cell.forget_bias}; }
};
template <class Candidate, class Gate>
struct rough_cell<gated_accumulation<Candidate, Gate>> {
  using type = gated_accumulation<activation::rough<Candidate>, activation::rough<Gate>>;
  static type of(const gated_accumulation<Candidate, Gate>& cell) { return {cell.forget_bias}; }
};

}  // namespace scanrec::inline SCANREC_ABI
