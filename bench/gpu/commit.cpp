// SPDX-License-Identifier: BSD-3-Clause
// The commit that the benchmarks were built from.
namespace bench {

extern const char* const commit;
const char* const commit = SCANREC_COMMIT;

}  // namespace bench
