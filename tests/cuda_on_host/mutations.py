#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Breaks the kernels for GPUs in one place at a time, and reports which breaks the tests on the
emulator notice: by a fault, by wrong bits, or by a test that does not end.

It works on a copy of the sources in a temporary folder. It fails if a mutation goes unnoticed and
gives no reason for that, or if one that gives a reason is noticed. With --check it only verifies
that every mutation still applies: that the replaced text occurs in the headers exactly once.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = "include/scanrec/detail/cuda"
BARRIER = "device::synchronise_block();\n"


class Mutation(typing.NamedTuple):
    file: str
    edits: tuple  # (old, new) ...
    why: str  # it is wrong
    test: str = "protocol_test"
    unseen: str = ""  # why no test can notice it


def mutation(file, old, new, why, **more):
    return Mutation(file, ((old, new),), why, **more)


def without(file, what, context, why, **more):
    """Leaves `what` out of `context`."""
    assert context.count(what) == 1, context
    return mutation(file, context, context.replace(what, ""), why, **more)


def of_rings(old, new, why):
    return mutation("lane_ring.cuh", old, new, why, test="lanes_test")


def of_selective(file, old, new, why, **more):
    return mutation(f"selective_{file}.cuh", old, new, why, test="selective_test", **more)


ACQUIRE = ("device::fence();\n    }\n    device::synchronise_block();",
           "}\n    device::synchronise_block();")
RELEASE = ("device::fence();\n    device::store_word", "device::store_word")

MUTATIONS = (
    # Looking back.
    mutation("tiles_before.cuh", "if (farthest || !part.read", "if (!part.read",
             "the farthest segment takes a map: there is no state to begin with"),
    mutation("tiles_before.cuh", "looks ? keep() : seen::nothing", "seen::nothing",
             "asks twice for what is there", unseen="the same messages, later"),
    mutation("tiles_before.cuh",
             "all.moderate = all.moderate && maps::template moderate<lane>(all.composed);", "",
             "applies maps of several warps that are not moderate"),
    mutation("tiles_before.cuh", "boundary = span_of(at) - at.segment;",
             "boundary = span_of(at) - 1 - at.segment;", "the span before is left out"),
    mutation("look_back.cuh", "if (!is_first) before", "if (at.tile > 1) before",
             "the second tile begins as the first does"),
    mutation("look_back.cuh", "others.boundary_state(at, 0).send(before.state, call_number());", "{}",
             "no tile learns the first state"),
    mutation("tiles_before.cuh", "int i = nearest - cutting.width;", "int i = nearest;",
             "takes a map where there is a state"),
    mutation("tiles_before.cuh", "i >= 0; i -= cutting.width", "i > 0; i -= cutting.width",
             "leaves out the nearest span of the first channel"),
    mutation("tiles_before.cuh", "boundary = span_of(at) - (i >> cutting.width_shift)",
             "boundary = span_of(at) - 1 - (i >> cutting.width_shift)",
             "waits for the state at the boundary before"),
    mutation("tiles_before.cuh", "x = maps::template moderate_carry<lane>(x) ?", "x = true ?",
             "applies maps of spans to states that are not moderate"),
    mutation("tiles_before.cuh", "before.moderate && start_moderate", "start_moderate",
             "applies maps that are not moderate"),
    mutation("tiles_before.cuh", "before.moderate && start_moderate", "before.moderate",
             "applies maps to states that are not moderate"),
    mutation("tiles_before.cuh", "all.moderate && (bits & cutting.first_column << at.column) == 0;",
             "all.moderate;", "takes maps for moderate because the one of the whole warp is"),
    mutation("tiles_before.cuh", "if (whole_moderate) span_map", "span_map",
             "sends maps of spans that are not moderate"),
    mutation("tiles_before.cuh", "result.knows_next = whole_moderate && start_moderate;", "",
             "the state at a boundary is not that of the fold", test="look_back_test"),
    mutation("tiles_before.cuh", "result.knows_next = whole_moderate && start_moderate;",
             "result.knows_next = whole_moderate;",
             "the state at a boundary follows from one that is not moderate"),
    mutation("tiles_before.cuh", "cutting.first_column << at.column) == 0", "1u << at.column) == 0",
             "maps of the first segment of a warp alone must be moderate"),
    mutation("tiles_before.cuh", "whole_moderate = before.moderate &&", "whole_moderate = false &&",
             "sends no map of a span"),
    mutation("tiles_before.cuh", "advance(boundary == 1, map_of", "advance(false, map_of",
             "operators get an initial element in the first span"),
    mutation("tiles_before.cuh", "first = span_of(at) == 0,", "first = false,",
             "operators get an initial element before the first boundary"),
    mutation("tiles_before.cuh", "(before.moderate && start_moderate)", "(false)",
             "waits for the tile before", unseen="the same states, one tile after the other"),
    mutation("../shared/affine_carries.hpp", "range_of<State> / 6>", "range_of<State> / 3>",
             "takes larger factors for moderate"),
    mutation("../shared/affine_carries.hpp", "& 0x7fffffffu)", "& 0xffffffffu)",
             "takes negative numbers for large ones"),
    mutation("look_back.cuh", "if (sends && !unsent)", "if (sends)",
             "sends a state before it is known to be the loop's"),
    mutation("look_back.cuh", "if (unsent) before_it", "if (unsent && false) before_it",
             "never sends the state that single steps have led to"),
    mutation("tiles_before.cuh", "carry_in(at, at.tile - 1)", "carry_in(at, at.tile)",
             "waits for its own state"),
    mutation("tiles_before.cuh", "at.tile - before + at.segment)", "at.tile - 1 - at.segment)",
             "composes the maps of a span from right to left"),
    mutation("tiles_before.cuh", " || at.segment + 1 == before)", ")",
             "leaves out a warp that the maps of the span do not fill"),
    mutation("tiles_before.cuh", "present = at.there && at.segment < before;",
             "present = at.there && at.segment + 1 < before;", "leaves out the tile before"),
    mutation("tiles_before.cuh", "compose(all.composed, of_warps.load(w * width + at.column))",
             "compose(of_warps.load(w * width + at.column), all.composed)",
             "composes the later map first, over warps of a span"),
    mutation("tiles_before.cuh", "map_in(at, cutting.tiles + boundary)", "map_in(at, boundary)",
             "maps of spans lie upon those of tiles"),
    mutation("tiles_before.cuh", "words(at, place) + words_of<map> * cutting.width",
             "words(at, place)", "the messages of a tile lie upon each other"),
    mutation("tiles_before.cuh", "(bits != 0) nearest += device::first_bit(bits)",
             "(bits != 0) nearest += 31 - std::countl_zero(bits)",
             "the farthest state of a warp, not the nearest: the same bits, by a longer fold of"
             " maps that may not be there"),
    without("tiles_before.cuh", BARRIER, BARRIER + "    if (!leads) return {};\n\n    span_prefix",
            "the leading thread reads maps of warps that are not there yet"),
    without("tiles_before.cuh", BARRIER, BARRIER + "    if (!leads) return {};\n\n    found",
            "the leading thread reads what others have not seen yet"),
    without("look_back.cuh", BARRIER, "seen::nothing);\n    " + BARRIER,
            "verdicts are read before they are given"),
    without("look_back.cuh", BARRIER, BARRIER + "      stage.store",
            "results are copied back before they are there"),
    # Messages.
    mutation("messages.cuh", "there = there && words[i].tag == tag;", "if (i == 0) there = words[i].tag == tag;",
             "the first word alone proves itself"),
    mutation("messages.cuh", "there = there && words[i].tag == tag;", "there = words[i].tag == tag;",
             "the last word alone proves itself"),
    mutation("messages.cuh", "words[i].tag == tag;", "words[i].tag != 0;", "words of earlier calls are taken"),
    mutation("messages.cuh", "words[i].tag == tag;", "true;", "words are taken that nobody sent"),
    mutation("messages.cuh", "{bits[i], tag}", "{bits[i], tag + 1}", "the tag is that of no call"),
    mutation("messages.cuh", "while (!load().read(value, tag)) device::pause();",
             "load().read(value, tag);", "does not wait for what a walk will find"),
    # Tickets.
    mutation("tile_place.cuh", "device::fetch_add(&header->drawn, 1)", "header->drawn++",
             "two blocks draw one ticket"),
    mutation("tile_place.cuh", "device::fetch_add(&header->drawn, one_call - all);", "",
             "no ticket is left for the next call"),
    mutation("tile_place.cuh", "header->halves = halves + 1;", "{}", "calls are counted to 2^32"),
    mutation("tile_place.cuh", "halves -= (halves ^ calls / half) & 1;", "",
             "the last ticket's count of calls is taken for that of this one",
             unseen="who reads it has not drawn yet, in the order in which the emulator loads"),
    without("tile_place.cuh", BARRIER, BARRIER + "  const drawn_tile own",
            "a ticket is read before it is drawn"),
    # Sums.
    mutation("look_back.cuh", "turns.begin(recurrence, cutting, at);", "", "takes no turns"),
    mutation("look_back.cuh", "columns.clear(recurrence, cutting, at);", "",
             "adds to terms that are not cleared"),
    Mutation("tile_sums.cuh", (ACQUIRE,), "reads sums as they were before the lane's turn"),
    Mutation("tile_sums.cuh", (RELEASE,), "gives the turn away before its sums are there"),
    Mutation("tile_sums.cuh", (ACQUIRE, RELEASE), "neither reads nor writes sums in its turn"),
    mutation("tile_sums.cuh", "w.value == static_cast<std::uint64_t>(at.group)", "w.value > 0",
             "takes the turn of another lane"),
    without("tile_sums.cuh", BARRIER,
            "!words) return;\n    " + BARRIER, "sums are written before all is added to them"),
    without("tile_sums.cuh", BARRIER, BARRIER + "    if (device::thread_index() != 0) return;",
            "gives the turn away before others have written",
            unseen="what is written and cleared is of places that no lane after this one has"),
    without("tile_sums.cuh", BARRIER,
            "device::fence();\n    }\n    " + BARRIER,
            "clears sums before the lane's turn",
            unseen="what is cleared is the lane's own; a barrier follows before sums are added to"),
    without("tile_sums.cuh", BARRIER, BARRIER + "        if (at.segment < half)",
            "adds sums of threads that are not there yet"),
    without("tile_sums.cuh", BARRIER, BARRIER + "      places.store(thread, simd",
            "puts sums where others are still read"),
    without("tile_sums.cuh", BARRIER, BARRIER + "    const std::int64_t first = at.tile",
            "adds terms of channels that are not there yet"),
    without("lane_sums.cuh", BARRIER, BARRIER + "      if (own < half)",
            "adds sums of threads that are not there yet"),
    mutation("lane_sums.cuh", "half = threads / 2; half > 0", "half = threads / 2; half > 1",
             "leaves out half of the sums"),
    mutation("lane_sums.cuh", "place = std::remove_reference_t<decltype(place)>{};", "",
             "leaves in the workspace what may be taken for messages"),
    # Maps of tiles.
    mutation("tile_maps.cuh", "algebra.compose(earlier, own)", "algebra.compose(own, earlier)",
             "composes the later map first, within a warp"),
    mutation("tile_maps.cuh", "algebra.compose(earlier, before)",
             "algebra.compose(before, earlier)", "composes the later map first"),
    mutation("tile_maps.cuh", "compose(earlier, of_warps.load(w * width + at.column))",
             "compose(of_warps.load(w * width + at.column), earlier)",
             "composes the later map first, over warps"),
    mutation("tile_maps.cuh", "compose(tile, of_warps.load(w * width + at.column))",
             "compose(of_warps.load(w * width + at.column), tile)",
             "composes the later map first, for the whole tile"),
    mutation("tile_maps.cuh", "joins ? lane - apart : lane", "lane", "composes a map with itself"),
    without("tile_maps.cuh", BARRIER, BARRIER + "  if (at.count == 0) return;",
            "reads maps of warps that are not there yet"),
    # Staging.
    without("staging.cuh", "device::wait_for_copies();\n    ",
            "device::wait_for_copies();\n    " + BARRIER, "reads copies that are on their way"),
    without("staging.cuh", BARRIER, "device::wait_for_copies();\n    " + BARRIER,
            "reads copies that others have not waited for"),
    mutation("staging.cuh", "!n.exists || !n.elsewhere", "true",
             "leaves out the neighbour beyond the tile"),
    mutation("staging.cuh", "!n.exists || n.elsewhere", "true",
             "leaves out neighbours in the tile"),
    # Rings.
    of_rings("wait_for_copies_but<stages - 2>", "wait_for_copies_but<stages - 1>",
             "waits for a group too few"),
    of_rings("begin + ahead, stage);", "begin + ahead, (stage + 1) % stages);",
             "copies to the stage that is read"),
    of_rings("device::synchronise_warp();\n      }", "}",
             "reads what other lanes have not waited for"),
    of_rings("device::synchronise_warp();\n    for_sums", "for_sums",
             "adds terms of lanes that are not there yet"),
    # Selective scans.
    of_selective("forward", "device::synchronise_block();\n        if (p.out.present())\n",
                 "if (p.out.present())\n", "outputs before all states have been added"),
    of_selective("forward", "place_all();\n        device::synchronise_block();",
                 "place_all();", "steps are taken before their rows are there"),
    of_selective("forward", "(p.time - end) % selective_stretch == 0",
                 "end % selective_stretch == 0", "checkpoints counted from the first step"),
    of_selective("forward", "++i) x[i] = Tile::zero();", "++i) x[i] = x[i];", "states pass a cut"),
    of_selective("tile", "exchange_across(sent, 2)", "exchange_across(sent, 1)",
                 "a sum of the wrong lanes"),
    of_selective("elements", "channel_of<Along>(of_run, k) < at_.count &&\n"
                 "           step_of<Along>(of_run, k) >= idle_;",
                 "channel_of<Along>(of_run, k) < at_.count;",
                 "idle steps before the first one are taken"),
    of_selective("elements", "beside == 1 && between % run == 0", "beside == 1",
                 "runs that are not aligned", unseen="hosts load them all the same"),
    of_selective("elements", "first_run * apart<Along>(rows)", "0",
                 "all runs of a thread are its first"),
    of_selective("problem", "words[i] << 16 : words[i] & 0xffff0000u",
                 "words[i] & 0xffff0000u : words[i] << 16", "elements of a word change places"),
    of_selective("adjoint", "cut ? none : through;", "through;",
                 "gradients pass a cut"),
    of_selective("products", "this->own() ? of : tile::zero();", "of;",
                 "lanes without a channel have a share in the gradients of B and C"),
    of_selective("products", "!= 0 ? half : 0;", "!= 0 ? 0 : half;",
                 "sums over channels change places"),
    of_selective("products", "exchange_across(v[j][i + Bit], L * Bit)",
                 "exchange_across(v[j][i], L * Bit)", "channels exchange the same slots"),
    of_selective("products", "void put_products(std::int64_t begin) const {\n"
                 "    device::synchronise_block();", "void put_products(std::int64_t begin) const {",
                 "warps are added before they are there"),
    of_selective("adjoint", "begin > 0 ? number : 0", "begin > 0 ? number + 1 : 0",
                 "states of the checkpoint before"),
    of_selective("adjoint", "place_steps();\n        device::synchronise_block();",
                 "place_steps();", "states walk before their rows are there"),
    of_selective("elements", ", slope[e] = slope[e] * by[e];", ";", "slopes without intervals"),
    of_selective("elements", "0, 0, begin_ + step_of<Along>(of_run, k)",
                 "0, 0, step_of<Along>(of_run, k)",
                 "intervals of the first chunk"),
    of_selective("grad_elements", "there ? of_step * soft.load(kept_at(0, of_run)).of[k] : V(0)",
                 "of_step * soft.load(kept_at(0, of_run)).of[k]",
                 "elements that are not there have a share in gradients of intervals"),
    of_selective("adjoint", "device::synchronise_block();\n        if (channel_elements)",
                 "if (channel_elements)", "sums of elements that are not there yet"),
    of_selective("calls", "1, p.groups * in_group, 1,", "1, in_group, 1,",
                 "intervals get the gradients of one group"),
    of_selective("functions", "== 2 ? sum + sum : sum", "== 2 ? sum : sum",
                 "complex states put out once, not as pairs"),
    of_selective("grad_elements", "of_y = V(0.5) * of_y;", "of_y = of_y;",
                 "gradients of D have those of complex states twice"),
    of_selective("adjoint", "through = times_conj(l, a[j][i])", "through = simd::mul(l, a[j][i])",
                 "gradients of complex states without conjugates"),
    of_selective("products", "place[room.of_part] = sum.im;", "place[room.of_part] = sum.re;",
                 "gradients of complex B and C with real parts alone"),
    of_selective("tile", "(part * Shape::states + at.state)", "(at.state)",
                 "imaginary parts of complex B and C over the real ones"),
    of_selective("sums", "of_channel / s.parts) + i % s.parts;", "of_channel / s.parts);",
                 "both parts of a complex gradient to one place"),
    of_selective("plan", "at.row / groups, at.group = at.row % groups",
                 "at.row % groups, at.group = at.row / groups", "sequences for groups"),
)


def text_of(root, m):
    return (root / HEADERS / m.file).read_text()


def check():
    """Whether every mutation applies. Prints those that do not."""
    wrong = [(m, old, text_of(ROOT, m).count(old)) for m in MUTATIONS for old, _ in m.edits
             if text_of(ROOT, m).count(old) != 1]
    for m, old, times in wrong:
        print(f"{m.file}: found {times} times: {old!r} ({m.why})")
    print(f"{len(MUTATIONS)} mutations, {len(wrong)} of which do not apply")
    return not wrong


def copy_sources(to):
    """Copies the sources without builds and history."""
    shutil.copytree(ROOT, to, ignore=shutil.ignore_patterns("build*", ".git", "__pycache__"))


def configure(source, build):
    subprocess.run(
        ["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         "-DSCANREC_BUILD_BENCH=OFF", "-DSCANREC_BUILD_EXAMPLES=OFF", "-DSCANREC_CUDA=OFF",
         "-DSCANREC_INSTALL=OFF", "-DSCANREC_TEST_TYPES=float"],
        check=True, stdout=subprocess.DEVNULL)


def outcome(build, test, jobs, seconds):
    """How a test ends: "" if it passes."""
    made = subprocess.run(["ninja", "-C", build, f"-j{jobs}", test], capture_output=True, text=True)
    if made.returncode != 0:
        print(made.stdout)
        sys.exit("a mutation, or nothing at all, does not compile")
    try:
        ran = subprocess.run([build / "tests" / test, "--abort"], capture_output=True, text=True,
                             timeout=seconds)
    except subprocess.TimeoutExpired:
        return "does not end"
    if ran.returncode == 0:
        return ""
    said = re.search(r"exception with message:\s+(.*)|(SIG\w+)", ran.stdout)
    return (said[1] or said[2])[:70] if said else "wrong bits"


def run(chosen, jobs, seconds):
    """Whether all mutations are noticed that should be; prints a line for each."""
    right = True
    with tempfile.TemporaryDirectory() as folder:
        source, build = pathlib.Path(folder, "scanrec"), pathlib.Path(folder, "build")
        copy_sources(source)
        configure(source, build)
        for test in sorted({m.test for m in chosen}):
            if outcome(build, test, jobs, seconds):
                sys.exit(f"{test} fails without mutations")
        for m in chosen:
            file, text = source / HEADERS / m.file, text_of(ROOT, m)
            broken = text
            for old, new in m.edits:
                broken = broken.replace(old, new)
            file.write_text(broken)
            how = outcome(build, m.test, jobs, seconds)
            file.write_text(text)
            right = right and bool(how) != bool(m.unseen)
            verdict = "noticed  " if how else "unseen   " if m.unseen else "UNNOTICED"
            print(f"{verdict} {m.file:14} {m.why}: {how or m.unseen}", flush=True)
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only whether mutations apply")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="mutations whose file or reason contains this")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=120, help="a test may take")
    chosen = parser.parse_args()
    if not check():
        return 1
    if chosen.check:
        return 0
    some = [m for m in MUTATIONS if chosen.only in m.file or chosen.only in m.why]
    return 0 if run(some, chosen.jobs, chosen.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
