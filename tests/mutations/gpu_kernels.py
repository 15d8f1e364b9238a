# SPDX-License-Identifier: BSD-3-Clause
"""Mutations of the GPU kernels, detected by the tests on the emulator."""

from mutation import Mutation, mutation, without

FOLDER = "include/scanrec/detail/cuda"
CMAKE = ("-DSCANREC_TEST_TYPES=float",)
TEST = "cuda_protocol_test"
BARRIER = "device::synchronise_block();\n"


def of_rings(old, new, why):
    return mutation("lane_ring.cuh", old, new, why, test="cuda_lanes_test")


def of_selective(file, old, new, why, **more):
    return mutation(f"selective_{file}.cuh", old, new, why, test="cuda_selective_scan_test", **more)


ACQUIRE = (
    "device::fence();\n    }\n    device::synchronise_block();",
    "}\n    device::synchronise_block();",
)
RELEASE = ("device::fence();\n    device::store_word", "device::store_word")

MUTATIONS = (
    # Looking back.
    mutation(
        "tiles_before.cuh",
        "if (farthest || !m.part.read",
        "if (!m.part.read",
        "the farthest segment accepts a map although the fold needs a state",
    ),
    mutation(
        "tiles_before.cuh",
        "looks(at) ? keep() : seen::nothing",
        "seen::nothing",
        "ignores messages that are already loaded",
        unseen="the same results, only later",
    ),
    mutation(
        "tiles_before.cuh",
        "all.moderate = all.moderate && maps::template moderate<lane>(all.composed);",
        "",
        "applies maps of several warps that are not moderate",
    ),
    mutation(
        "tiles_before.cuh",
        "return span_of(at) - at.segment;",
        "return span_of(at) - 1 - at.segment;",
        "the previous span is left out",
    ),
    mutation(
        "run_tiles.cuh",
        "if (!is_first) before",
        "if (at.tile > 1) before",
        "the second tile begins like the first",
    ),
    mutation(
        "run_tiles.cuh",
        "others.boundary_state(at, 0).send(before.state, call_number());",
        "{}",
        "no tile gets the first state",
    ),
    mutation(
        "tiles_before.cuh",
        "int i = nearest - partition.width;",
        "int i = nearest;",
        "uses a map although a state is available",
    ),
    mutation(
        "tiles_before.cuh",
        "i >= 0; i -= partition.width",
        "i > 0; i -= partition.width",
        "leaves out the nearest span of the first channel",
    ),
    mutation(
        "tiles_before.cuh",
        "boundary = span_of(at) - (i >> partition.width_shift)",
        "boundary = span_of(at) - 1 - (i >> partition.width_shift)",
        "waits for the state at the previous boundary",
    ),
    mutation(
        "tiles_before.cuh",
        "x = maps::template moderate_carry<lane>(x) ?",
        "x = true ?",
        "applies maps of spans to states that are not moderate",
    ),
    mutation(
        "tiles_before.cuh",
        "before.moderate && start_moderate",
        "start_moderate",
        "applies maps that are not moderate",
    ),
    mutation(
        "tiles_before.cuh",
        "before.moderate && start_moderate",
        "before.moderate",
        "applies maps to states that are not moderate",
    ),
    mutation(
        "tiles_before.cuh",
        "all.moderate && (bits & partition.first_column << at.column) == 0;",
        "all.moderate;",
        "checks only the composed map of each warp",
    ),
    mutation(
        "tiles_before.cuh",
        "if (whole_moderate) span_map",
        "span_map",
        "sends maps of spans that are not moderate",
    ),
    mutation(
        "tiles_before.cuh",
        "result.knows_next = whole_moderate && start_moderate;",
        "",
        "the state at a boundary does not come from the fixed fold",
        test="cuda_look_back_test",
    ),
    mutation(
        "tiles_before.cuh",
        "result.knows_next = whole_moderate && start_moderate;",
        "result.knows_next = whole_moderate;",
        "the state at a boundary is computed from one that is not moderate",
    ),
    mutation(
        "tiles_before.cuh",
        "partition.first_column << at.column) == 0",
        "1u << at.column) == 0",
        "checks only the map of the first segment of each warp",
    ),
    mutation(
        "tiles_before.cuh",
        "whole_moderate = before.moderate &&",
        "whole_moderate = false &&",
        "sends no map of a span",
    ),
    mutation(
        "tiles_before.cuh",
        "advance(boundary == 1, map_of",
        "advance(false, map_of",
        "applies an operator to an initial element that does not exist, in the first span",
    ),
    mutation(
        "tiles_before.cuh",
        "first = span_of(at) == 0,",
        "first = false,",
        "applies an operator to an initial element that does not exist, before a boundary",
    ),
    mutation(
        "tiles_before.cuh",
        "(before.moderate && start_moderate)",
        "(false)",
        "always waits for the previous tile",
        unseen="the same results, only slower",
    ),
    mutation(
        "../maps/affine_carries.hpp",
        "range_of<State> / 6>",
        "range_of<State> / 3>",
        "treats too large factors as moderate",
    ),
    mutation(
        "../maps/affine_carries.hpp",
        "& 0x7fffffffu)",
        "& 0xffffffffu)",
        "treats negative numbers as large ones",
    ),
    mutation(
        "run_tiles.cuh",
        "if (follows && !unknown)",
        "if (follows)",
        "sends a state before it is known to be the loop's",
    ),
    mutation(
        "run_tiles.cuh",
        "if (unknown) pass",
        "if (unknown && false) pass",
        "never sends the state of a tile whose steps are computed one by one",
    ),
    mutation(
        "tiles_before.cuh",
        "carry_in(at, at.tile - 1)",
        "carry_in(at, at.tile)",
        "waits for its own state",
    ),
    mutation(
        "tiles_before.cuh",
        "at.tile - before + at.segment)",
        "at.tile - 1 - at.segment)",
        "composes the maps of a span from right to left",
    ),
    mutation(
        "tiles_before.cuh",
        " || at.segment + 1 == before)",
        ")",
        "leaves out the last warp, which is partly filled",
    ),
    mutation(
        "tiles_before.cuh",
        "present = at.there && at.segment < before;",
        "present = at.there && at.segment + 1 < before;",
        "leaves out the previous tile",
    ),
    mutation(
        "tiles_before.cuh",
        "compose(all.composed, of_warps.load(w * width + at.column))",
        "compose(of_warps.load(w * width + at.column), all.composed)",
        "composes the later map first, over warps of a span",
    ),
    mutation(
        "tiles_before.cuh",
        "map_in(at, partition.tiles + boundary)",
        "map_in(at, boundary)",
        "messages of spans and of tiles overlap",
    ),
    mutation(
        "tiles_before.cuh",
        "words(at, position) + words_of<map> * partition.width",
        "words(at, position)",
        "the messages of a tile overlap",
    ),
    mutation(
        "tiles_before.cuh",
        "(bits != 0) nearest += device::first_bit(bits)",
        "(bits != 0) nearest += 31 - std::countl_zero(bits)",
        "starts from the farthest known state of a warp; maps after it may be missing",
    ),
    without(
        "tiles_before.cuh",
        BARRIER,
        BARRIER + "    if (!leads) return {};\n\n    span_prefix",
        "the leading thread reads maps of warps before they are written",
    ),
    without(
        "tiles_before.cuh",
        BARRIER,
        BARRIER + "    if (!leads) return {};\n\n    found",
        "the leading thread reads flags before others have set them",
    ),
    without(
        "run_tiles.cuh",
        BARRIER,
        "seen::nothing);\n    " + BARRIER,
        "flags are read before all threads have written them",
    ),
    without(
        "run_tiles.cuh",
        BARRIER,
        BARRIER + "      stage.store",
        "results are copied to memory before all threads have written them",
    ),
    # Rows of whole tiles.
    mutation(
        "whole_rows.cuh",
        "(Beside < 0) == falls ? 0",
        "(Beside < 0) != falls ? 0",
        "reads the neighbour from the wrong end of a row",
        test="cuda_tiles_in_turn_test",
    ),
    mutation(
        "whole_rows.cuh",
        "return SegmentSteps - 1 - i;",
        "return i;",
        "processes a row in the wrong order if time runs backwards",
        test="cuda_tiles_in_turn_test",
    ),
    mutation(
        "whole_rows.cuh",
        "corner % sizeof(piece) == 0 &&",
        "",
        "copies in pieces of 16 bytes from addresses that are not aligned to them",
        test="cuda_tiles_in_turn_test",
    ),
    mutation(
        "run_tiles.cuh",
        "if (in_rows(tile)) device::wait_for_copies();",
        "",
        "reads rows before their copies have completed",
        test="cuda_tiles_in_turn_test",
    ),
    # Messages.
    mutation(
        "messages.cuh",
        "there = there && words[i].tag == tag;",
        "if (i == 0) there = words[i].tag == tag;",
        "checks only the tag of the first word",
    ),
    mutation(
        "messages.cuh",
        "there = there && words[i].tag == tag;",
        "there = words[i].tag == tag;",
        "checks only the tag of the last word",
    ),
    mutation(
        "messages.cuh",
        "words[i].tag == tag;",
        "words[i].tag != 0;",
        "accepts words of earlier calls",
    ),
    mutation("messages.cuh", "words[i].tag == tag;", "true;", "accepts words that nobody sent"),
    mutation("messages.cuh", "{bits[i], tag}", "{bits[i], tag + 1}", "sends a wrong tag"),
    mutation(
        "messages.cuh",
        "while (!load().read(value, tag)) device::pause();",
        "load().read(value, tag);",
        "does not wait for the message",
    ),
    # Tickets.
    mutation(
        "tile_position.cuh",
        "device::fetch_add(&header->drawn, 1)",
        "header->drawn++",
        "two blocks draw the same ticket",
    ),
    mutation(
        "tile_position.cuh",
        "device::fetch_add(&header->drawn, one_call - all);",
        "",
        "no ticket is left for the next call",
    ),
    mutation(
        "tile_position.cuh",
        "header->halves = halves + 1;",
        "{}",
        "the call counter is not extended beyond 32 bits",
    ),
    mutation(
        "tile_position.cuh",
        "halves -= (halves ^ calls / half) & 1;",
        "",
        "the call counter may already include the last ticket of this call",
        unseen="the emulator reads `halves` before it draws a ticket",
    ),
    without(
        "tile_position.cuh",
        BARRIER,
        BARRIER + "  return position_in",
        "a ticket is read before it is drawn",
    ),
    # Tiles in turn.
    mutation(
        "run_tiles.cuh",
        "if (!is_first && leads) before.state = ",
        "if (false) before.state = ",
        "every tile of a block begins like the first",
        test="cuda_tiles_in_turn_test",
    ),
    mutation(
        "run_tiles.cuh",
        "device::synchronise_block();  // the next tile reuses shared memory",
        "",
        "a block begins its next tile before all threads have finished the previous one",
        test="cuda_tiles_in_turn_test",
    ),
    # Pairs of sequences.
    mutation(
        "lane_pairs.cuh",
        "entry.neighbour * field.strides.time",
        "0 * field.strides.time",
        "a pair reads its own step instead of the neighbour",
        test="cuda_lane_pairs_test",
    ),
    mutation(
        "lane_pairs.cuh",
        "at{t, c + l, 0, l};",
        "at{t, c + l, 0, 0};",
        "both sequences of a pair are the first",
        test="cuda_lane_pairs_test",
    ),
    mutation(
        "lane_pairs.cuh",
        "(array.data) % 4",
        "(array.data) % 2",
        "pairs begin at unaligned elements",
        test="cuda_lane_pairs_test",
    ),
    # Sums.
    mutation("run_tiles.cuh", "turns.begin(recurrence, partition, at);", "", "takes no turns"),
    mutation(
        "run_tiles.cuh",
        "columns.clear(recurrence, partition, at);",
        "",
        "adds to terms that are not cleared",
    ),
    Mutation("tile_sums.cuh", (ACQUIRE,), "reads sums as they were before its turn"),
    Mutation("tile_sums.cuh", (RELEASE,), "passes its turn on before its sums are visible"),
    Mutation("tile_sums.cuh", (ACQUIRE, RELEASE), "has no fence before or after its turn"),
    mutation(
        "tile_sums.cuh",
        "w.value == static_cast<std::uint64_t>(at.group)",
        "w.value > 0",
        "takes the turn of another tile",
    ),
    without(
        "tile_sums.cuh",
        BARRIER,
        "!words) return;\n    " + BARRIER,
        "sums are written before all terms are added",
    ),
    without(
        "tile_sums.cuh",
        BARRIER,
        BARRIER + "    if (device::thread_index() != 0) return;",
        "passes its turn on before other threads have written",
        unseen="later tiles do not use these sums",
    ),
    without(
        "tile_sums.cuh",
        BARRIER,
        "device::fence();\n    }\n    " + BARRIER,
        "clears sums before its turn",
        unseen="the cleared sums are the tile's own; a barrier follows before terms are added",
    ),
    without(
        "tile_sums.cuh",
        BARRIER,
        BARRIER + "        if (at.segment < half)",
        "reads sums of threads before they are written",
    ),
    without(
        "tile_sums.cuh",
        BARRIER,
        BARRIER + "      positions.store(thread, simd",
        "overwrites sums that others still read",
    ),
    without(
        "tile_sums.cuh",
        BARRIER,
        BARRIER + "    const std::int64_t first = at.tile",
        "reads terms of channels before they are written",
    ),
    without(
        "lane_sums.cuh",
        BARRIER,
        BARRIER + "      if (own < half)",
        "reads sums of threads before they are written",
    ),
    mutation(
        "lane_sums.cuh",
        "half = threads / 2; half > 0",
        "half = threads / 2; half > 1",
        "leaves out half of the sums",
    ),
    mutation(
        "lane_sums.cuh",
        "position = std::remove_reference_t<decltype(position)>{};",
        "",
        "leaves sums in the workspace that a later call may read as messages",
    ),
    mutation(
        "workspace.cuh",
        "if (first < header_bytes) first = header_bytes;",
        "",
        "restarts the count of calls, so later calls read old messages",
    ),
    # Maps of tiles.
    mutation(
        "tile_maps.cuh",
        "algebra.compose(earlier, own)",
        "algebra.compose(own, earlier)",
        "composes the later map first, within a warp",
    ),
    mutation(
        "tile_maps.cuh",
        "algebra.compose(earlier, before)",
        "algebra.compose(before, earlier)",
        "composes the later map first",
    ),
    mutation(
        "tile_maps.cuh",
        "compose(earlier, of_warps.load(w * width + at.column))",
        "compose(of_warps.load(w * width + at.column), earlier)",
        "composes the later map first, over warps",
    ),
    mutation(
        "tile_maps.cuh",
        "compose(tile, of_warps.load(w * width + at.column))",
        "compose(of_warps.load(w * width + at.column), tile)",
        "composes the later map first, for the whole tile",
    ),
    mutation("tile_maps.cuh", "joins ? lane - apart : lane", "lane", "composes a map with itself"),
    without(
        "tile_maps.cuh",
        BARRIER,
        BARRIER + "  if (at.count == 0) return;",
        "reads maps of warps before they are written",
    ),
    # Staging.
    without(
        "staging.cuh",
        "device::wait_for_copies();\n    ",
        "device::wait_for_copies();\n    " + BARRIER,
        "reads copies before they have arrived",
    ),
    without(
        "staging.cuh",
        BARRIER,
        "device::wait_for_copies();\n    " + BARRIER,
        "reads copies before other threads have waited for them",
    ),
    mutation(
        "staging.cuh",
        "!n.exists || !n.elsewhere",
        "true",
        "leaves out the neighbour beyond the tile",
    ),
    mutation(
        "staging.cuh", "!n.exists || n.elsewhere", "true", "leaves out neighbours in the tile"
    ),
    # Rings.
    of_rings(
        "wait_for_copies_but<stages - 2>",
        "wait_for_copies_but<stages - 1>",
        "waits for one group of copies fewer",
    ),
    of_rings(
        "begin + ahead, stage);",
        "begin + ahead, (stage + 1) % stages);",
        "copies to the stage that is being read",
    ),
    of_rings(
        "device::synchronise_warp();\n      }",
        "}",
        "reads copies before other lanes have waited for them",
    ),
    of_rings(
        "device::synchronise_warp();\n    for_sums",
        "for_sums",
        "reads terms of lanes before they are written",
    ),
    # Selective scans.
    of_selective(
        "forward",
        "device::synchronise_block();\n        if (p.out.present())\n",
        "if (p.out.present())\n",
        "writes outputs before all states have been added",
    ),
    of_selective(
        "forward",
        "stage_all();\n        device::synchronise_block();",
        "stage_all();",
        "reads rows of B and C before they are written",
    ),
    of_selective(
        "forward",
        "(p.time - end) % memory::checkpoint_interval == 0",
        "end % memory::checkpoint_interval == 0",
        "counts checkpoints from the first step instead of the last",
    ),
    of_selective(
        "forward", "++i) x[i] = Tile::zero();", "++i) x[i] = x[i];", "states cross a reset"
    ),
    of_selective(
        "tile",
        "exchange_across(sent, 2)",
        "exchange_across(sent, 1)",
        "adds states of the wrong lanes",
    ),
    of_selective(
        "elements",
        "channel_of<Along>(of_run, k) < at_.count &&\n"
        "           step_of<Along>(of_run, k) >= idle_;",
        "channel_of<Along>(of_run, k) < at_.count;",
        "computes padding steps before the first step",
    ),
    of_selective(
        "elements",
        "beside == 1 && between % run == 0",
        "beside == 1",
        "loads runs that are not aligned",
        unseen="CPUs allow unaligned loads",
    ),
    of_selective(
        "elements",
        "first_run * apart<Along>(rows)",
        "0",
        "uses the first run of a thread for all its runs",
    ),
    of_selective(
        "problem",
        "words[i] << 16 : words[i] & 0xffff0000u",
        "words[i] & 0xffff0000u : words[i] << 16",
        "swaps the elements of a word",
    ),
    of_selective("adjoint", "reset ? none : through;", "through;", "gradients cross a reset"),
    of_selective(
        "products",
        "this->own() ? of : tile::zero();",
        "of;",
        "adds garbage of lanes without a channel to the gradients of B and C",
    ),
    of_selective("products", "!= 0 ? half : 0;", "!= 0 ? 0 : half;", "swaps the sums of channels"),
    of_selective(
        "products",
        "exchange_across(v[j][i + Bit], L * Bit)",
        "exchange_across(v[j][i], L * Bit)",
        "channels exchange the same states",
    ),
    of_selective(
        "products",
        "void put_products(std::int64_t begin) const {\n    device::synchronise_block();",
        "void put_products(std::int64_t begin) const {",
        "reads sums of warps before they are written",
    ),
    of_selective(
        "adjoint",
        "begin > 0 ? number : 0",
        "begin > 0 ? number + 1 : 0",
        "recomputes states from a wrong checkpoint",
    ),
    of_selective(
        "adjoint",
        "stage_steps();\n        device::synchronise_block();",
        "stage_steps();",
        "recomputes states before their rows are written",
    ),
    of_selective(
        "elements",
        ", slope[e] = slope[e] * by[e];",
        ";",
        "does not multiply derivatives by the interval",
    ),
    of_selective(
        "elements",
        "0, 0, begin_ + step_of<Along>(of_run, k)",
        "0, 0, step_of<Along>(of_run, k)",
        "uses the intervals of the first chunk for all chunks",
    ),
    of_selective(
        "grad_elements",
        "there ? of_step * soft.load(kept_at(0, of_run)).of[k] : V(0)",
        "of_step * soft.load(kept_at(0, of_run)).of[k]",
        "adds garbage of absent elements to gradients of intervals",
    ),
    of_selective(
        "adjoint",
        "device::synchronise_block();\n        if (channel_elements)",
        "if (channel_elements)",
        "adds elements before they are written",
    ),
    of_selective(
        "calls",
        "1, p.groups * in_group, 1,",
        "1, in_group, 1,",
        "adds only the gradients of one group to those of intervals",
    ),
    of_selective(
        "functions",
        "== 2 ? sum + sum : sum",
        "== 2 ? sum : sum",
        "the factor 2 of conjugate pairs is missing in outputs",
    ),
    of_selective(
        "grad_elements",
        "of_y = V(0.5) * of_y;",
        "of_y = of_y;",
        "the gradient of D has the factor 2 of conjugate pairs",
    ),
    of_selective(
        "adjoint",
        "through = times_conj(l, a[j][i])",
        "through = simd::mul(l, a[j][i])",
        "gradients of complex states are not conjugated",
    ),
    of_selective(
        "products",
        "position[room.of_part] = sum.im;",
        "position[room.of_part] = sum.re;",
        "writes real parts of complex gradients of B and C twice",
    ),
    of_selective(
        "tile",
        "(part * Shape::states + at.state)",
        "(at.state)",
        "imaginary parts of complex B and C overwrite real parts",
    ),
    of_selective(
        "sums",
        "of_channel / s.parts) + i % s.parts;",
        "of_channel / s.parts);",
        "adds both parts of a complex gradient to one number",
    ),
    of_selective(
        "plan",
        "at.row / groups, at.group = at.row % groups",
        "at.row % groups, at.group = at.row / groups",
        "swaps sequences and groups",
    ),
)
