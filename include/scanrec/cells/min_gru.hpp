// SPDX-License-Identifier: BSD-3-Clause
// minGRU (Feng et al., Were RNNs All We Needed?, 2024, section 3.1) as a cell of a gated scan.
#pragma once

#include <array>

#include <scanrec/cells/activation.hpp>
#include <scanrec/cells/cell.hpp>

namespace scanrec::inline SCANREC_ABI {

/// state = (1 - z) * state + z * h with z = Gate(update_gate) and h = Candidate(candidate); the
/// state is the output.
///
/// Candidate is activation::identity in the paper's original form, and activation::positive in its
/// log-space form. 1 - z is rounded: if z stays below about 1e-3 over many steps, log_space
/// with the logarithm of 1 - z is more accurate (docs/numerics.md).
template <class Candidate = activation::identity, class Gate = activation::sigmoid>
struct min_gru {
  using outputs = output_is_state;
  template <class View>
  struct arrays {
    View candidate, update_gate;
  };
  static constexpr std::array names{array_name{"candidate", "candidate_grad"},
                                    array_name{"update_gate", "update_gate_grad"}};

  template <class Lane>
  struct step {
    activated<Lane> h, z;
  };
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE step<Lane> load(Lane candidate, Lane update) {
    return {Candidate::of(candidate), Gate::of(update)};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE affine<Lane> map(const step<Lane>& s) {
    return {s.z.complement, simd::mul(s.z.value, s.h.value)};
  }
  template <class Lane>
  SCANREC_HD static SCANREC_INLINE std::array<Lane, 2> gradients(const step<Lane>& s,
                                                                 const cell_cotangents<Lane>& d) {
    return {through(d.state, s.z.value, s.h.slope),
            through(d.state, s.h.value - d.before, s.z.slope)};
  }
};

template <class Candidate, class Gate>
struct rough_cell<min_gru<Candidate, Gate>> {
  using type = min_gru<activation::rough<Candidate>, activation::rough<Gate>>;
  static type of(const min_gru<Candidate, Gate>&) { return {}; }
};

}  // namespace scanrec::inline SCANREC_ABI
