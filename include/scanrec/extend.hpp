// SPDX-License-Identifier: BSD-3-Clause
// What backends and recurrences of your own are written with (docs/design.md). The interface
// between the two may change with any minor version, unlike that of the calls.
#pragma once

#include <scanrec/affine.hpp>
#include <scanrec/concepts.hpp>
#include <scanrec/detail/problem/run.hpp>
#include <scanrec/detail/recurrence/affine_steps.hpp>
#include <scanrec/detail/recurrence/arrays.hpp>
#include <scanrec/detail/recurrence/field.hpp>
#include <scanrec/detail/recurrence/recompute.hpp>
#include <scanrec/detail/recurrence/sums.hpp>
#include <scanrec/problem.hpp>
