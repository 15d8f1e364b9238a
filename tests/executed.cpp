// SPDX-License-Identifier: BSD-3-Clause
// The implementation of executed.hpp.
#include "executed.hpp"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <set>

#include "catch.hpp"

namespace tested {
namespace {

struct record {
  std::mutex one_at_a_time;
  std::map<std::string, std::set<std::string>> expected, called;    // by test case
  std::map<std::string, std::map<std::string, long long>> options;  // by backend
};
record& the_record() {
  static record all;
  return all;
}

/// The name of a backend up to the first space: cuda::lanes for "cuda::lanes through a ring".
std::string family_of(const std::string& backend) { return backend.substr(0, backend.find(' ')); }

}  // namespace

std::string current_test() { return Catch::getResultCapture().getCurrentTestName(); }

void expect_backend(const std::string& name) {
  const std::string test = current_test();
  const std::scoped_lock lock(the_record().one_at_a_time);
  the_record().expected[test].insert(name);
}
void record_call(const std::string& backend, const char* call,
                 std::initializer_list<used_option> options) {
  record_call(backend);
  const std::scoped_lock lock(the_record().one_at_a_time);
  auto& counts = the_record().options[family_of(backend)];
  ++counts[call];
  for (const used_option& option : options)
    if (option.used) ++counts[std::string(call) + '\t' + option.name];
}
void record_call(const std::string& backend) {
  const std::string test = current_test();
  const std::scoped_lock lock(the_record().one_at_a_time);
  the_record().called[test].insert(backend);
}

bool report_executed() {
  record& all = the_record();
  bool complete = true;
  for (const auto& [test, names] : all.expected)
    for (const std::string& name : names)
      if (all.called[test].count(name) == 0) {
        std::cerr << "test case '" << test << "': expected a call of " << name << ", got none\n";
        complete = false;
      }
  if (const char* const file = std::getenv("SCANREC_TEST_EXECUTED")) {
    std::ofstream out(file);
    for (const auto& [test, names] : all.called) {
      std::set<std::string> families;
      for (const std::string& name : names) families.insert(family_of(name));
      for (const std::string& family : families) out << "test\t" << test << '\t' << family << '\n';
    }
    for (const auto& [backend, counts] : all.options)
      for (const auto& [option, count] : counts)
        out << "option\t" << backend << '\t' << count << '\t' << option << '\n';
    if (!out.flush()) {
      std::cerr << "environment variable SCANREC_TEST_EXECUTED: cannot write " << file << '\n';
      complete = false;
    }
  }
  return complete;
}

}  // namespace tested
