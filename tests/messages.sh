#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks that if a recurrence, a cell or a backend lacks a member, the first compiler error names it.
# Use: messages.sh COMPILER INCLUDE_DIRECTORIES...
set -euo pipefail
export LC_ALL=C

compiler=$1
shift
include=("${@/#/-I}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A running sum as a recurrence. -DNO_<member> leaves out a member.
cat >"$work/recurrence.cpp" <<'CPP'
#include <scanrec/extend.hpp>
#include <scanrec/scan.hpp>

namespace mine {

using namespace scanrec::extend;

struct running_sum {
#ifndef NO_value
  using value = float;
#endif
#ifndef NO_one_by_one
  static constexpr bool one_by_one = true;
#endif
#ifndef NO_any_operator
  static constexpr bool any_operator = false;
#endif
#ifndef NO_map_of
  template <class Lane>
  using map_of = scanrec::affine<Lane>;
#endif
#ifndef NO_state_of
  template <class Lane>
  using state_of = Lane;
#endif
#ifndef NO_sums
  template <class Lane>
  struct sums {};
#endif
  input_field<float> input;
  reset_field resets;
  output_field<float> state;
#ifndef NO_arrays
  using arrays = array_list<reads<&running_sum::input>, reads_reset_mask<&running_sum::resets>,
                            writes<&running_sum::state>>;
#endif
#ifndef NO_load
  template <class Lane, class Position>
  Lane load(Position at) const {
    return input.template load<Lane>(at);
  }
#endif
#ifndef NO_map
  template <class Lane, class Position>
  scanrec::affine<Lane> map(Position, Lane read) const {
    return {1, read};
  }
#endif
#ifndef NO_next
  template <class Lane, class Position>
  Lane next(Position, Lane read, Lane before) const {
    return before + read;
  }
#endif
#ifndef NO_finish
  template <class Lane, class Position, class Sums>
  void finish(Position at, Lane, Lane, Lane after, Sums&) const {
    state.put(at, after);
  }
#endif
#ifndef NO_begin
  template <class Lane, class Position>
  Lane begin(Position) const {
    return 0;
  }
#endif
#ifndef NO_end
  template <class Lane, class Position>
  void end(Position, Lane) const {}
#endif
#ifndef NO_flush
  template <class Position, class Sums>
  void flush(Position, Sums&) const {}
#endif
#ifndef NO_touch_rest
  template <class Lane, class Position>
  void touch_rest(Position) const {}
#endif
};

#ifdef LACKS
static_assert(!scanrec::step_recurrence<running_sum>, "the concept holds");
#else
static_assert(scanrec::step_recurrence<running_sum>);
#endif

}  // namespace mine

void call(const scanrec::sequence_view<float>& x, const scanrec::sequence_view<float>& y) {
  scanrec::extend::problem_builder c("running_sum", x.shape);
  const int input = c.add("input", x, scanrec::access::read);
  const int state = c.add("state", y, scanrec::access::write);
  c.prepare<mine::running_sum>(scanrec::direction::forward);
#ifndef LACKS
  mine::running_sum r;
  r.input = c.input<float>(input), r.state = c.output<float>(state);
  scanrec::extend::run(scanrec::tiled{}, r, c);
#endif
}
CPP
cat >"$work/backend.cpp" <<'CPP'
#include <scanrec/scan.hpp>
namespace mine {
struct nothing {};
inline std::int64_t workspace_bytes(const nothing&, const scanrec::problem&) { return 0; }
}
void call(const scanrec::sequence_view<float>& x) {
  scanrec::linear_scan(mine::nothing{}, x, x, x);
}
CPP
# minGRU as a cell. -DNO_<member> leaves out a member.
cat >"$work/cell.cpp" <<'CPP'
#include <scanrec/gated_scan.hpp>
namespace mine {
using namespace scanrec;
struct cell {
#ifndef NO_outputs
  using outputs = output_is_state;
#endif
#ifndef NO_arrays
  template <class View>
  struct arrays {
    View candidate, gate;
  };
#endif
  static constexpr std::array names{array_name{"candidate", "candidate_grad"},
                                    array_name{"gate", "gate_grad"}};
#ifndef NO_step
  template <class Lane>
  struct step {
    Lane candidate, gate;
  };
#endif
#ifndef NO_load
  template <class Lane>
  static auto load(Lane candidate, Lane gate) {
#ifdef NO_step
    return candidate;
#else
    return step<Lane>{candidate, gate};
#endif
  }
#endif
#ifndef NO_map
  template <class Step>
  static auto map(const Step& s) {
    using lane = decltype(s.gate);
    return affine<lane>{s.gate, s.candidate};
  }
#endif
#ifndef NO_gradients
  template <class Step, class Lane>
  static std::array<Lane, 2> gradients(const Step&, const cell_cotangents<Lane>& d) {
    return {d.state, simd::mul(d.state, d.before)};
  }
#endif
};
}  // namespace mine
template <class Arrays>
void call(const Arrays& arrays, const scanrec::sequence_view<float>& y) {
  scanrec::gated_scan(mine::cell{}, arrays, y);
}
struct two {
  scanrec::sequence_view<float> candidate, gate;
};
void call(const scanrec::sequence_view<float>& x) { call(two{x, x}, x); }
CPP

failed=0
# first_error SOURCE FLAGS...: prints the first line of the first error, or nothing.
first_error() {
  local source=$1
  shift
  "$compiler" -std=c++20 -fsyntax-only "${include[@]}" "$@" "$work/$source.cpp" 2>&1 |
    grep -m1 'error' | sed 's/.*error: //' || true
}
expect() {
  local expected=$1 got
  shift
  got=$(first_error "$@")
  if [[ $got != *"$expected"* ]]; then
    echo "$*: expected \"$expected\", got \"$got\""
    failed=1
  else
    echo "$*: $got"
  fi
}
got=$(first_error recurrence)
if [[ -n $got ]]; then
  echo "a complete recurrence does not compile: $got"
  failed=1
fi
for member in value arrays one_by_one any_operator; do
  expect "scanrec: this recurrence has no \`$member\`" recurrence -DLACKS "-DNO_$member"
done
for member in sums map_of state_of; do
  expect "scanrec: this recurrence has no \`$member<Lane>\`" recurrence -DLACKS "-DNO_$member"
done
for member in load begin touch_rest; do
  expect "scanrec: this recurrence has no \`$member<Lane>(position" recurrence -DLACKS "-DNO_$member"
done
for member in map next finish end flush; do
  expect "scanrec: this recurrence has no \`$member(position" recurrence -DLACKS "-DNO_$member"
done
expect "scanrec: this backend has no run_recurrence(backend, recurrence, problem)" backend
got=$(first_error cell)
if [[ -n $got ]]; then
  echo "a complete cell does not compile: $got"
  failed=1
fi
for member in outputs map load gradients; do
  expect "scanrec: this cell has no \`$member" cell "-DNO_$member"
done
expect "scanrec: this cell has no \`arrays<View>" cell -DNO_arrays
expect step cell -DNO_step  # GCC reports the missing template before any check
exit $failed
