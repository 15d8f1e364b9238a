// SPDX-License-Identifier: BSD-3-Clause
// Two peers based on CUB, for sequences with contiguous steps. One is CUB's device-wide scan of
// (gate, input) pairs, with and without the time to pack and unpack them. The other has one
// block per sequence, which scans chunk after chunk with CUB's block-wide scan, as Mamba's
// selective scan does.
#include <cstdint>
#include <vector>

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <cub/block/block_load.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/device/device_scan.cuh>

#include "variants.cuh"

namespace bench {
namespace kernels {

struct alignas(8) pair {
  float gate, input;
};
struct combine {
  __device__ pair operator()(const pair& x, const pair& y) const {
    return {y.gate * x.gate, fmaf(y.gate, x.input, y.input)};
  }
};
struct number_of_sequence {
  std::int64_t steps;
  SCANREC_HD std::int64_t operator()(std::int64_t i) const { return i / steps; }
};

__global__ void pack(const float* gate, const float* input, pair* pairs, std::int64_t n) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x)
    pairs[i] = {gate[i], input[i]};
}
__global__ void unpack(const pair* pairs, float* state, std::int64_t n) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x)
    state[i] = pairs[i].input;
}
// Backwards in time: pair i belongs to element n - 1 - i, with the gate of the step after it.
__global__ void pack_vjp(const float* gate, const float* state_grad, pair* pairs, std::int64_t n) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x)
    pairs[i] = {i > 0 ? gate[n - i] : 0, state_grad[n - 1 - i]};
}
__global__ void unpack_vjp(const pair* pairs, const float* state, float* gate_grad,
                           float* input_grad, std::int64_t n, std::int64_t steps) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const float g = pairs[n - 1 - i].input;
    input_grad[i] = g;
    gate_grad[i] = i % steps > 0 ? g * state[i - 1] : 0;
  }
}

struct carried {
  pair all{1, 0};
  __device__ pair operator()(const pair& chunk) {
    const pair before = all;
    all = combine{}(all, chunk);
    return before;
  }
};
inline constexpr int block_threads = 128, block_items = 16;
__global__ void __launch_bounds__(block_threads)
    scan_block_per_sequence(const float* gate, const float* input, float* state,
                            std::int64_t steps) {
  using load = cub::BlockLoad<float, block_threads, block_items, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using scan = cub::BlockScan<pair, block_threads, cub::BLOCK_SCAN_WARP_SCANS>;
  using store = cub::BlockStore<float, block_threads, block_items, cub::BLOCK_STORE_WARP_TRANSPOSE>;
  __shared__ union {
    typename load::TempStorage load;
    typename scan::TempStorage scan;
    typename store::TempStorage store;
  } shared;
  constexpr int chunk = block_threads * block_items;
  const std::int64_t first = blockIdx.x * steps;
  carried prefix;
  for (std::int64_t t = 0; t < steps; t += chunk) {
    const int there = static_cast<int>(min(steps - t, static_cast<std::int64_t>(chunk)));
    float a[block_items], u[block_items];
    pair pairs[block_items];
    const auto load_chunk = [&](const float* from, float(&to)[block_items]) {
      if (there == chunk)
        load(shared.load).Load(from + first + t, to);
      else
        load(shared.load).Load(from + first + t, to, there, 0.0f);
      __syncthreads();
    };
    load_chunk(gate, a);
    load_chunk(input, u);
    for (int k = 0; k < block_items; ++k) pairs[k] = {a[k], u[k]};
    scan(shared.scan).InclusiveScan(pairs, pairs, combine{}, prefix);
    __syncthreads();
    for (int k = 0; k < block_items; ++k) u[k] = pairs[k].input;
    if (there == chunk)
      store(shared.store).Store(state + first + t, u);
    else
      store(shared.store).Store(state + first + t, u, there);
    __syncthreads();
  }
}

}  // namespace kernels

namespace {

using kernels::pair;

void require_steps_side_by_side(const arrays<float>& a) {
  const bool one = a.shape.batch * a.shape.channel == 1;
  if (a.strides.time != 1 || (!one && a.strides.channel != a.shape.time))
    throw left_out("needs sequences with contiguous steps");
}

/// Runs the scan of pairs. If memory is nullptr, sets `bytes` to its workspace size instead.
void scan_pairs(const arrays<float>& a, void* memory, std::size_t& bytes, const pair* in,
                pair* out) {
  const cudaStream_t stream = machine::here().stream;
  const std::int64_t n = a.elements();
  if (n == a.shape.time)
    check(cub::DeviceScan::InclusiveScan(memory, bytes, in, out, kernels::combine{}, n, stream),
          "InclusiveScan");
  else
    check(cub::DeviceScan::InclusiveScanByKey(
              memory, bytes,
              thrust::make_transform_iterator(thrust::make_counting_iterator(std::int64_t{0}),
                                              kernels::number_of_sequence{a.shape.time}),
              in, out, kernels::combine{}, n, ::cuda::std::equal_to<>{}, stream),
          "InclusiveScanByKey");
}

/// The pairs, the scanned pairs, and CUB's workspace.
struct pair_memory {
  pair *in, *out;
  void* rest;
  std::size_t rest_bytes;
  pair_memory(const arrays<float>& a, const cuda::workspace& w)
      : in(static_cast<pair*>(w.data)),
        out(in + a.elements()),
        rest(out + a.elements()),
        rest_bytes(static_cast<std::size_t>(w.bytes) - 2 * sizeof(pair) * a.elements()) {}
};
std::int64_t pair_bytes(call, const arrays<float>& a) {
  require_steps_side_by_side(a);
  std::size_t bytes = 0;
  scan_pairs(a, nullptr, bytes, nullptr, nullptr);
  return static_cast<std::int64_t>(2 * sizeof(pair) * a.elements() + bytes);
}
void pack(call what, const arrays<float>& a, const cuda::workspace& w) {
  const machine& gpu = machine::here();
  const std::int64_t n = a.elements();
  const pair_memory m(a, w);
  if (what == call::forward)
    kernels::pack<<<gpu.enough_blocks(), 256, 0, gpu.stream>>>(a.data[0], a.data[1], m.in, n);
  else
    kernels::pack_vjp<<<gpu.enough_blocks(), 256, 0, gpu.stream>>>(a.data[0], a.data[2], m.in, n);
  check(cudaGetLastError(), "pack");
}
void scan(call, const arrays<float>& a, const cuda::workspace& w) {
  pair_memory m(a, w);
  scan_pairs(a, m.rest, m.rest_bytes, m.in, m.out);
}
void unpack(call what, const arrays<float>& a, const cuda::workspace& w) {
  const machine& gpu = machine::here();
  const std::int64_t n = a.elements();
  const pair_memory m(a, w);
  if (what == call::forward)
    kernels::unpack<<<gpu.enough_blocks(), 256, 0, gpu.stream>>>(m.out, a.data[2], n);
  else
    kernels::unpack_vjp<<<gpu.enough_blocks(), 256, 0, gpu.stream>>>(m.out, a.data[1], a.data[3],
                                                                     a.data[4], n, a.shape.time);
  check(cudaGetLastError(), "unpack");
}

void scan_by_blocks(call what, const arrays<float>& a, const cuda::workspace&) {
  require_steps_side_by_side(a);
  if (what != call::forward) throw left_out("forward only");
  kernels::scan_block_per_sequence<<<static_cast<unsigned>(a.elements() / a.shape.time),
                                     kernels::block_threads, 0, machine::here().stream>>>(
      a.data[0], a.data[1], a.data[2], a.shape.time);
  check(cudaGetLastError(), "scan_block_per_sequence");
}

}  // namespace

std::vector<variant<float>> peers() {
  return {{"cub_pairs", pair_bytes,
           [](call what, const arrays<float>& a, const cuda::workspace& w) {
             pack(what, a, w), scan(what, a, w), unpack(what, a, w);
           }},
          {"cub_pairs_packed", pair_bytes, scan, pack, unpack},
          {"block_per_sequence", [](call, const arrays<float>&) { return std::int64_t{0}; },
           scan_by_blocks}};
}

}  // namespace bench
