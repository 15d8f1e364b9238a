# SPDX-License-Identifier: BSD-3-Clause
"""Mutations of the CPU kernels, the argument checks and the layers."""

from mutation import mutation

FOLDER = "include/scanrec"
CMAKE = (
    "-DSCANREC_TEST_CUDA_ON_HOST=OFF",
    "-DSCANREC_TEST_TYPES=float",
    "-DSCANREC_TEST_GATED=gated_float",
    "-DSCANREC_TEST_OPTIMISATION=-O1",
    "-DCMAKE_CXX_FLAGS=-DSCANREC_TEST_STRIDE=5",
)
TEST = "linear_scan_test"


def cpu(header, old, new, why, **more):
    return mutation(f"detail/cpu/{header}.hpp", old, new, why, **more)


def recurrence(header, old, new, why, **more):
    return mutation(f"detail/recurrence/{header}.hpp", old, new, why, **more)


def maps(header, old, new, why, **more):
    return mutation(f"detail/maps/{header}.hpp", old, new, why, **more)


def selective(header, old, new, why):
    return cpu(f"selective_{header}", old, new, why, test="selective_scan_test")


def attention(header, old, new, why, test="linear_attention_test"):
    return cpu(header, old, new, why, test=test)


def problem(header, old, new, why, test="arguments_test"):
    return mutation(f"detail/problem/{header}.hpp", old, new, why, test=test)


MUTATIONS = (
    # Lanes along channels.
    cpu(
        "channel_packs",
        "std::min<std::int64_t>(lanes, where.channels - c));\n  }\n\n  // The order",
        "lanes);\n  }\n\n  // The order",
        "reads and writes beyond the last channel",
    ),
    cpu(
        "kernels_by_channel",
        "if (inside && known == assume::plain)",
        "if (known == assume::plain)",
        "reads a neighbour outside the sequence",
    ),
    cpu(
        "kernels_by_channel",
        "simd::mul(detail::wide_factor<carry>(step), recent)",
        "simd::mul(recent, detail::wide_factor<carry>(step))",
        "composes the later matrix first",
        test="matrix_test",
    ),
    cpu(
        "kernels_by_channel",
        "own[i].recent = own[0].recent;",
        "(void)i;",
        "channels that share factors all get the map of the first pack",
    ),
    cpu(
        "kernels_by_channel",
        "      own[i].recent = map::identity().a;",
        "",
        "factors of earlier steps are multiplied in again",
        test="many_threads_test",
    ),
    cpu(
        "kernels_by_channel",
        "if (before > 0 && before % factor_steps == 0)",
        "if (few.begin > b.begin)",
        "factors are multiplied in other groups if a tile is recomputed in parts",
        test="many_threads_test",
    ),
    cpu(
        "channel_packs",
        "const std::int64_t i = way.descending ? left - together.value",
        "const std::int64_t i = way.descending ? left - 1",
        "processes the wrong packs together",
    ),
    cpu(
        "kernels_by_channel",
        "slots[i].state = after;\n    if constexpr (Assume != assume::plain && "
        "has_sums) r.copy_sums(sums, slots[i].sums);",
        "slots[i].state = after;",
        "running sums are forgotten after every step",
        test="sums_test",
    ),
    cpu(
        "kernels_by_channel",
        "if (!way.descending) run_rest(given, where, row, slots, composed, way);",
        "",
        "the channels after the last whole pack are left out",
    ),
    # Lanes along time.
    cpu(
        "kernels_by_time",
        "if (flushes && end == next_flush && end < where.end) flush_one(r, where, i, own);",
        "",
        "a lane adds up too many terms",
        test="sums_test",
    ),
    cpu(
        "kernels_by_time",
        "at.time += lanes, at.index += next)",
        "at.time += lanes, at.index += lanes)",
        "processes descending arrays in ascending order",
    ),
    cpu(
        "kernels_by_time",
        "          maps = filled_up(r, maps);\n          maps.all",
        "          maps.all",
        "steps between packs are composed before the pending packs",
        test="many_threads_test",
    ),
    cpu("kernels_by_time", "state = states.last;", "", "the carry is not passed from pack to pack"),
    cpu(
        "kernels_by_time",
        "          packs = 0;\n        }",
        "        }",
        "factors of packs after the fourth are multiplied in",
    ),
    cpu(
        "kernels_by_time",
        "if (at.time < of.end) steps(at.time, of.end);",
        "",
        "the steps after the last whole pack are left out",
    ),
    # One sequence per lane.
    cpu(
        "kernels_by_element",
        "first ? recent : algebra.compose(all, recent)",
        "first ? recent : algebra.compose(recent, all)",
        "composes the later map first",
        test="inclusive_scan_test",
    ),
    cpu(
        "kernels_by_element",
        "recent = algebra.compose(recent, map_at(at));",
        "recent = algebra.compose(map_at(at), recent);",
        "composes later steps first",
        test="inclusive_scan_test",
    ),
    cpu(
        "kernels_by_element",
        "one.index = c;",
        "",
        "all channels read those of the first",
        test="matrix_test",
    ),
    cpu(
        "kernels_by_element",
        "add_few(r, few, few.begin == tile, reductions);\n      run",
        "add_few(r, few, true, reductions);\n      run",
        "forgets the steps before the last few",
        test="inclusive_scan_test",
    ),
    # Tiles.
    cpu(
        "tile_schedule",
        "{sums_of_worker(j, output), -offset_of(j.box.begin, sum.strides),",
        "{sums_of_worker(j, output), 0,",
        "sums of a work item lie beyond its accumulators",
    ),
    cpu(
        "tile_schedule",
        "if (inner == within_item) clear",
        "if (inner && within_item) clear",
        "adds to sums of another work item",
    ),
    cpu(
        "tile_schedule",
        "if (is_last) kernels_.end",
        "if (tile == 0) kernels_.end",
        "the final state is that after the first tile",
    ),
    cpu(
        "tile_schedule",
        "ceil_div(size.channel, kernels_.lanes)",
        "size.channel / kernels_.lanes",
        "the last channels have no carry between tiles",
    ),
    cpu(
        "tile_schedule",
        "kernels_.advance_from_state(in_use, reductions, slots, carries);",
        "",
        "a carry that is not finite is not passed on",
        test="overflow_test",
    ),
    cpu(
        "tile_schedule",
        "if (plan_.streaming) simd::stream_fence();",
        "",
        "a worker ends before its streaming stores are ordered",
        unseen="the fences of locks order them on these processors",
    ),
    cpu(
        "tile_schedule",
        "if (in_turns_ && is_last) tasks_.await(turn_, j.item, j.task);",
        "",
        "adds to totals before its turn",
        test="many_threads_test",
    ),
    cpu(
        "kernel_table",
        "    kernel::flush(r, where, slots);\n  }\n\n  static void store_carries",
        "  }\n\n  static void store_carries",
        "running sums are never flushed",
    ),
    cpu(
        "kernel_table",
        "row.group != 0 || row.batch != 0",
        "row.group != 0 && row.batch != 0",
        "all sequences of the first group are treated as the first sequence",
    ),
    cpu(
        "kernel_table",
        "if (!finite) return false;",
        "",
        "the carry is computed from maps that are not finite",
        test="overflow_test",
    ),
    cpu(
        "kernel_table",
        "finite = finite && kernel",
        "finite = kernel",
        "only the last channels of a work item are checked for overflow",
        test="overflow_test",
    ),
    cpu(
        "kernel_table",
        "part.begin - flushed >= kernel::flush_steps",
        "part.begin - flushed > kernel::flush_steps",
        "sums are flushed to the wide type after twice as many terms",
        test="sums_test",
    ),
    # Plans and scratch.
    cpu(
        "choose_tiles",
        "if (over_batch && !over_group) d.group_can_span = false;",
        "",
        "a work item contains groups whose sums must stay separate",
        test="tile_plan_test",
    ),
    cpu(
        "choose_tiles",
        "p.recomputed_bytes > 0 ? memory::checkpoint_interval\n",
        "false ? memory::checkpoint_interval\n",
        "tiles end within a checkpoint interval that is recomputed",
        test="tile_plan_test",
    ),
    cpu(
        "choose_tiles",
        "d.channel_whole |= broadcast_along(array, axis::channel);",
        "",
        "strips of one row write the same sum",
        test="tile_plan_test",
    ),
    cpu(
        "tile_plan",
        "lines(clipped_product(plan.open_items(), slots, most_bytes), plan.carry_bytes)",
        "lines(plan.open_items(), plan.carry_bytes)",
        "carries overlap what comes after them",
        test="tile_plan_test",
    ),
    cpu(
        "tile_plan",
        "s.recomputed += lines(plan.sums[i].elements, plan.sums[i].wide_bytes);",
        "",
        "the sums of all outputs overlap",
        test="tile_plan_test",
    ),
    cpu(
        "tile_plan",
        "std::min(box.begin.batch + plan.batch_span, plan.shape.batch)",
        "box.begin.batch + plan.batch_span",
        "the last work item has sequences that do not exist",
        test="tile_plan_test",
    ),
    cpu(
        "tile_plan",
        "recurrence::lane_axis::time && !lanes.reversed;",
        "recurrence::lane_axis::time && lanes.reversed;",
        "states are recomputed in the wrong direction of memory",
        test="gated_scan_typed_test",
    ),
    cpu(
        "scratch",
        "if (size < bytes)",
        "if (size < 0)",
        "works in too small a workspace",
        test="workspace_test",
    ),
    cpu(
        "scratch",
        "if (bytes > 0 && pointer %",
        "if (bytes < 0 && pointer %",
        "works in a workspace that is not aligned",
        test="workspace_test",
    ),
    # Staging.
    cpu(
        "stage",
        "reset_after || (halo && after) ? 1 : 0",
        "reset_after ? 1 : 0",
        "the neighbour after a block is missing",
        test="stage_test",
    ),
    cpu(
        "stage",
        "room) + before * row;",
        "room);",
        "the first element is overwritten by the neighbour before it",
        test="stage_test",
    ),
    cpu(
        "stage",
        "field.action == recurrence::write::add);",
        "false);",
        "adds to outputs that were not staged",
        test="stage_test",
    ),
    cpu(
        "stage",
        "if (!along_time) std::memset(static_cast<void*>(room), 0, size * sizeof(S));",
        "",
        "lanes without a channel are not initialised",
        test="stage_test",
    ),
    cpu(
        "stage",
        "(along_time && layout_.reversed ? room + (rows - 1) : room)",
        "room",
        "a reversed block begins at the wrong end",
        test="stage_test",
    ),
    # The comparison backends.
    cpu(
        "map_columns",
        "(b.begin + shift) * plan.width",
        "b.begin * plan.width",
        "the map of a step overwrites the map before it",
        test="inclusive_scan_test",
    ),
    cpu(
        "map_columns",
        "if (at.time + 1 == steps) r.end(at, after);",
        "if (at.time == steps) r.end(at, after);",
        "no final state is written",
        test="inclusive_scan_test",
    ),
    cpu(
        "hillis_steele",
        "std::int64_t i = (first + apart / 2) * width",
        "std::int64_t i = (first + apart) * width",
        "finished elements are missing in the other buffer",
        test="inclusive_scan_test",
    ),
    cpu(
        "sequence_columns",
        "channel * rows + row;",
        "row * channels + channel;",
        "sequences of one channel are not contiguous",
    ),
    cpu(
        "sequence_columns",
        "if (end >= steps) std::fill(x + steps, x + length, T(0));",
        "",
        "inputs after the last step are not initialised",
        test="workspace_test",
    ),
    cpu(
        "triangular_matmul",
        "if (all_.reset_at(owner, t)) first = t, reset = 1;",
        "if (all_.reset_at(owner, t)) reset = 1;",
        "a chunk is not reset at its last reset",
        test="numerics_test",
    ),
    cpu("triangle", "fma(a, x[k], u)", "fma(a, u, x[k])", "the gate multiplies the input"),
    # Workers.
    cpu(
        "workers",
        "if (number >= number_.load(std::memory_order_relaxed)) return;",
        "",
        "the caller gets the last exception instead of the first",
        test="executor_test",
    ),
    cpu(
        "workers",
        "std::min<std::int64_t>(block, tasks_ % workers_)",
        "std::min<std::int64_t>(block - 1, tasks_ % workers_)",
        "two workers run the same task",
        test="task_queue_test",
    ),
    # Recurrences.
    recurrence(
        "vjp",
        "through_gate = simd::select(read.reset, simd::constant<factor_t<Lane>>(0), through_gate);",
        "(void)read.reset;",
        "the gradient of the gate crosses a reset",
    ),
    recurrence(
        "vjp",
        "at.time + steps_of<Lane, Axis> == steps;",
        "at.time == 0;",
        "the wrong step reads the initial state",
        test="vjp_options_test",
    ),
    recurrence(
        "vjp",
        "if (input_grad.action == write::sum_time) to.input = from.input;",
        "",
        "sums of input gradients are forgotten",
        test="vjp_options_test",
    ),
    recurrence(
        "vjp",
        "simd::conj_if(sign, load_shifted<1, Lane>(state, initial_state, at, edge));",
        "load_shifted<1, Lane>(state, initial_state, at, edge);",
        "the state is not conjugated",
        test="s5_test",
    ),
    recurrence(
        "vjp",
        "at.time + Lanes < steps",
        "at.time + Lanes <= steps",
        "a pack reads the state before the first",
        test="vjp_options_test",
    ),
    recurrence(
        "jvp",
        "continued = simd::select(read.reset, read.input, continued);",
        "",
        "the tangent of the gate crosses a reset",
    ),
    recurrence(
        "jvp",
        "(Assume == assume::nothing || at.time > 0) &&",
        "",
        "a pack reads the state before the first",
        unseen="memory before the array is readable, and the pack is recomputed otherwise",
    ),
    recurrence(
        "field",
        "const std::int64_t lane_stride = simd::lane_count<Lane> == 1 ? strides.channel : 1;",
        "const std::int64_t lane_stride = 1;",
        "single lanes are touched without their channel stride",
        test="matrix_test",
        cases="matrix recurrences access no memory outside their arrays for any strides",
    ),
    recurrence(
        "sensitivity",
        "{simd::constant<scalar>(1), a}",
        "{a, a}",
        "the state is multiplied by the gate",
        test="sensitivity_test",
    ),
    recurrence(
        "gated_vjp",
        "this->unless_reset(at, read, load_before<Lane>(at), zero)",
        "load_before<Lane>(at)",
        "the gradient of the gate crosses a reset",
        test="gated_scan_typed_test",
    ),
    recurrence(
        "gated_vjp",
        "r.resets.shift = -r.resets.shift;",
        "",
        "states are recomputed with the resets of neighbours",
        test="gated_scan_typed_test",
    ),
    recurrence(
        "gated_vjp",
        "if (static_cast<int>(i) != Cell::outputs::array)\n",
        "",
        "the output gate of a zoned out step has no gradient",
        test="gated_scan_typed_test",
    ),
    recurrence(
        "gated_forward",
        "left % interval != 0 || left == 0",
        "left % interval != 0",
        "a checkpoint is written before the first",
        test="recompute_test",
    ),
    recurrence(
        "gated_forward",
        "m.u = simd::select(read.zoned_out, zero, m.u);",
        "",
        "the input of a zoned out step is added",
        test="gated_scan_typed_test",
    ),
    # Code that all backends share.
    recurrence(
        "sums",
        "if (out.update) sum = sum +",
        "if (false) sum = sum +",
        "overwrites gradients instead of accumulating sums",
    ),
    recurrence(
        "sums",
        "along(strides, a) == 0 ? along(box.begin, a) + 1 : along(box.end, a)",
        "along(box.end, a)",
        "adds a sum once per element that it sums",
        test="vjp_options_test",
    ),
    recurrence(
        "recompute",
        "before_interval(interval)",
        "before_interval(interval + 1)",
        "recomputes states from a wrong checkpoint",
        test="recompute_test",
    ),
    recurrence(
        "recompute",
        "const block again{T - interval_end, T - 1 - begin,",
        "const block again{T - interval_end, T - 2 - begin,",
        "recomputes one state too few",
        test="recompute_test",
    ),
    maps(
        "lane_scans",
        "return scan_lanes<2 * K>(combine(earlier, m));",
        "return scan_lanes<2 * K>(combine(m, earlier));",
        "composes the later map first",
    ),
    maps(
        "affine_carries",
        "return simd::select(zero_if_finite_state<State>(after), carry_of(last), after);",
        "return carry_of(last);",
        "an infinity in one channel changes the bits of another channel",
        test="overflow_test",
    ),
    # Selective scans.
    selective(
        "adjoint",
        "(p_.time - position.begin) / memory::checkpoint_interval - 1)",
        "(p_.time - position.begin) / memory::checkpoint_interval)",
        "recomputes states from a wrong checkpoint",
    ),
    selective(
        "adjoint",
        "y = y + y, y_grad =",
        "y_grad =",
        "the factor 2 of conjugate pairs is missing in gradients of z",
    ),
    selective(
        "adjoint",
        "interval_sums_[t] += sum_of",
        "interval_sums_[t] = sum_of",
        "the gradient of an interval has only the last channels",
    ),
    selective(
        "forward",
        "simd::splat<lane>(delta_u[i]), b)",
        "simd::splat<lane>(delta_u[0]), b)",
        "a single step gives all channels the input of the first",
    ),
    selective(
        "steps",
        "State gate_grad = times_conj(l, kept[2 * i + 1]);",
        "State gate_grad = simd::mul(l, kept[2 * i + 1]);",
        "gradients of complex A are not conjugated",
    ),
    selective(
        "steps",
        "carry[i] = simd::select(rows.resets[t], zero, carry[i]);",
        "(void)i;",
        "gradients of states cross a reset",
    ),
    selective(
        "bc_totals",
        "totals_ + (2 * group + odd)",
        "totals_ + (group + odd)",
        "totals of two groups overlap",
    ),
    selective(
        "tile",
        "at_.batch, begin, n, at_.group)",
        "at_.batch, begin, n, 0)",
        "all groups use B and C of the first group",
    ),
    # Cells.
    mutation(
        "cells/rg_lru.hpp",
        "a_minus = simd::negative(s.a);",
        "a_minus = s.a;",
        "the slope of the scale has a wrong sign",
        test="cells_rg_lru_test",
    ),
    mutation(
        "cells/qrnn.hpp",
        "through(d.state, s.z.value, s.i.slope)",
        "through(d.state, s.z.value, s.f.slope)",
        "the gradient of the input gate uses the slope of another gate",
        test="cells_qrnn_test",
    ),
    # Calls.
    problem(
        "check", "if (!injective(array))", "if (false)", "writes elements that share a position"
    ),
    problem(
        "check",
        "same_elements(written, other) && !summed(written)",
        "same_elements(written, other)",
        "a sum may alias its own terms",
    ),
    problem(
        "check",
        "if (!overlap(written, other)) continue;",
        "continue;",
        "writes arrays that overlap",
    ),
    problem(
        "check",
        "start -= std::abs(sx) * (n - 1);",
        "",
        "misses overlaps of elements before those of the other array",
        test="problem_test",
    ),
    problem(
        "check",
        "add(std::abs(sx), 2 * n - 1);",
        "add(std::abs(sx), n);",
        "misses overlaps of elements after those of the other array",
        test="problem_test",
    ),
    recurrence(
        "reset_field",
        "resets.shift = adjoint ? 1 : -1;",
        "resets.shift = -1;",
        "adjoints of reverse scans are reset one step away",
        test="vjp_options_test",
    ),
    problem(
        "linear_scan",
        '{"final_state", "initial_state"}',
        '{"final_state", "input"}',
        "rejects a final state that aliases the initial state",
        test="linear_scan_test",
    ),
    recurrence(
        "reset_field",
        "if (!one_more) resets.step_without_reset",
        "resets.step_without_reset",
        "ignores the reset after the last step",
        test="linear_scan_test",
    ),
    problem(
        "../view_checks",
        "last < first || last > count",
        "last > count",
        "a part of a view has a negative extent",
        test="views_test",
    ),
    problem(
        "../view_checks",
        "(n == 1 || (n > 1 && stride == 0))",
        "(n == 1 || stride == 0)",
        "repeats elements that do not exist",
        test="views_test",
    ),
    # State spaces and layers.
    cpu(
        "s5_intervals",
        "const std::int64_t later = std::max(t, from);",
        "const std::int64_t later = t;",
        "a reset acts one step away in reverse scans",
        test="s5_test",
    ),
    cpu(
        "s5_intervals",
        "row.vjp(v * before.conjugate(),",
        "row.vjp(v * before,",
        "the state is not conjugated",
        test="s5_test",
    ),
    cpu(
        "s5_intervals",
        "(direction == 0 ? R(0) : grad)",
        "R(0)",
        "gradients of intervals have only one direction",
        test="s5_test",
    ),
    cpu(
        "s5_products",
        "= -twice() * s.output(q, p).imag();",
        "= twice() * s.output(q, p).imag();",
        "outputs use the conjugate of C",
        test="s5_test",
    ),
    cpu(
        "causal_conv1d_tile",
        "p_.resets.at(batch_, t)) seen = 0;",
        "p_.resets.at(batch_, t)) seen = 1;",
        "the convolution reads a step before a reset",
        test="causal_conv1d_test",
    ),
    cpu(
        "causal_conv1d_tile",
        "begin < before_ ||",
        "",
        "kernels that read inputs in place read before the first step",
        test="causal_conv1d_test",
    ),
    cpu(
        "causal_conv1d_adjoint",
        "this->fill_zero(sum_grad_ + read * size_.packs, steps + before_ - read);",
        "",
        "steps after the last step have gradients",
        test="causal_conv1d_test",
    ),
    cpu(
        "causal_conv1d_driver",
        "piece < pieces(); ++piece",
        "piece < plan_.pieces; ++piece",
        "gradients of weights lack sequences after the first",
        test="causal_conv1d_test",
    ),
    # Linear attention.
    attention(
        "attention_rows",
        "t < end && !resets.at(batch, t, 0);)",
        "t < end;)",
        "a reset inside a chunk is ignored",
    ),
    attention(
        "linear_attention_chunk",
        "{u, W, steps * W}, i);\n      tile.add_lower({of + i, steps, 1}, {u + i * W, W, steps * W});",
        "{u, W, steps * W}, i + tile.rows);",
        "outputs are sums that contain 0 times the values of later steps",
    ),
    attention(
        "linear_attention_chunk",
        "if (std::exchange(loaded_key_, key) != key)",
        "if (std::exchange(loaded_key_, key) < 0)",
        "all heads of a task have the keys of the first",
    ),
    attention(
        "linear_attention_chunk",
        "p.dv % W == 0 && ",
        "",
        "states of a last pack that is not whole are read and written in place",
    ),
    attention(
        "attention_key_gates",
        "if (i % block >= back) to[",
        "to[",
        "keys of earlier blocks are not decayed in the block of the query",
    ),
    attention(
        "attention_key_gates",
        "multiply_block(keys + j, rest);",
        "multiply_block(keys + j, 1);",
        "keys of earlier blocks are not decayed by whole blocks",
    ),
    attention(
        "attention_key_gates",
        "j < border && border < n; ++j)",
        "j < border && border < 0; ++j)",
        "keys of whole blocks are not decayed by the last, shorter block",
    ),
    attention(
        "attention_key_gates",
        "if (known == n) return;",
        "if (known >= n) return;",
        "dropped steps of a stream still decay keys",
        test="linear_attention_stream_test",
    ),
    attention(
        "attention_key_adjoint",
        "    s_ = simd::mul(y, s_);\n",
        "",
        "the product of the states around a chunk is not decayed by later blocks",
        test="linear_attention_vjp_test",
    ),
    attention(
        "attention_key_adjoint",
        "if (!part.queries) store_lanes(",
        "if (false) store_lanes(",
        "the gradient of keys lacks what they read with the delta rule",
        test="linear_attention_vjp_test",
    ),
    attention(
        "linear_attention_plan",
        ".packs = share(block + 1, blocks, packs) - pack",
        ".packs = packs / blocks",
        "columns of a head are left out if its packs have no equal shares",
    ),
    attention(
        "linear_attention_adjoint",
        "return reset_at(t) || (t == 0 && ",
        "return (t == 0 && ",
        "recomputed states cross resets",
        test="linear_attention_vjp_test",
    ),
    attention(
        "linear_attention_adjoint",
        "return reset_at(t) || (t == p_.time && ",
        "return (t == p_.time && ",
        "gradients of states cross resets",
        test="linear_attention_vjp_test",
    ),
    attention(
        "linear_attention_adjoint",
        "memory_->first_chunk(part_.pack, first);",
        "first;",
        "the adjoint does not count chunks from the last reset",
        test="linear_attention_vjp_test",
    ),
    attention(
        "linear_attention_adjoint",
        "if (from != to) std::copy_n",
        "if (from == to) std::copy_n",
        "with divided heads, the gradient of a state does not reach the previous window",
        test="linear_attention_vjp_test",
    ),
    attention(
        "attention_rows",
        "if (alpha != nullptr) of_start = last[g] * after;",
        "",
        "the gradient of a gate lacks the product of the states around a chunk",
        test="linear_attention_vjp_test",
    ),
    attention(
        "linear_attention_adjoint_driver",
        "if (heads >= p_.heads || !grad.present() || grad.access == &rows_of<V, V>) return sums;",
        "return sums;",
        "gradients that heads share are rounded to 16 bits after each head",
        test="linear_attention_vjp_test",
    ),
    attention(
        "linear_attention_driver",
        "work.count() + n == chunk::steps);",
        "true);",
        "every call of a stream ends its chunk",
        test="linear_attention_stream_test",
    ),
    mutation(
        "linear_attention_stream.hpp",
        "for (std::int64_t h = 0; h < shape_.group; ++h) {\n      const std::int64_t i = batch",
        "for (std::int64_t h = 0; h < 1; ++h) {\n      const std::int64_t i = batch",
        "only the first head of a sequence drops steps",
        test="linear_attention_stream_test",
    ),
    mutation(
        "layers/mamba.hpp",
        "decay_grad.array() * decay.array();",
        "decay_grad.array();",
        "the gradient is that of A instead of its logarithm",
        test="layers_mamba_test",
    ),
    mutation(
        "layers/qrnn.hpp",
        "carried.past.topRows(old) = memory.start.past.bottomRows(old);",
        "carried.past.topRows(old) = memory.start.past.topRows(old);",
        "short chunks do not advance the window",
        test="layers_qrnn_test",
    ),
    mutation(
        "layers/qrnn.hpp",
        "check_apart(written);",
        "",
        "gradients of inputs overwrite their own inputs",
        test="layers_qrnn_test",
    ),
)
