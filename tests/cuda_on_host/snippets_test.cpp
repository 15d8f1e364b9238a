// SPDX-License-Identifier: BSD-3-Clause
// Tests of the documents' GPU code, on the emulator.
#include "../../docs/snippets.cu"

#include <vector>

#include "catch.hpp"
#include "emulator.hpp"

TEST_CASE("the documents' GPU example gives the right values", "[cuda_look_back]") {
  const scanrec::extents shape{.batch = 2, .time = 1000, .channel = 16};
  std::vector<float> gate(32000, 0.5f), input(32000, 1.0f), state(32000), state_grad(32000, 1.0f),
      gate_grad(32000), input_grad(32000);
  std::vector<double> room(100000);
  cuda_on_host::stream stream;
  on_gpu(&stream, {room.data(), 800000}, {gate, shape}, {input, shape}, {state, shape},
         {state_grad, shape}, {gate_grad, shape}, {input_grad, shape});
  CHECK(state[0] == 1.0f);
  CHECK(state[32] == 1.75f);
  CHECK(input_grad[998 * 16] == 1.5f);
  CHECK(gate_grad[16] == 2.0f);  // the cotangent 2 times the previous state 1
  CHECK(stream.launches == 2);
}
