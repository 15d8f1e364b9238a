// SPDX-License-Identifier: BSD-3-Clause
// Writes benchmark results as JSON: a context and a list of rows. Each of these is a `record`.
#pragma once

#include <cstdio>
#include <ctime>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// A JSON object whose fields keep the order of insertion.
class record {
 public:
  record& set(const char* name, double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.7g", value);
    return put(name, text);
  }
  record& set(const char* name, const char* value) { return put(name, quoted(value)); }
  record& set(const char* name, const std::string& value) { return put(name, quoted(value)); }
  record& set(const char* name, const record& value) { return put(name, value.text()); }
  [[nodiscard]] std::string text() const {
    std::string all = "{";
    for (const auto& [name, value] : fields_) {
      if (all.size() > 1) all += ", ";
      all += name;
      all += ": ";
      all += value;
    }
    return all + "}";
  }

 private:
  static std::string quoted(const std::string& value) {
    std::string text = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') text += '\\';
      text += c == '\n' ? ' ' : c;
    }
    return text + '"';
  }
  record& put(const char* name, std::string value) {
    fields_.emplace_back(quoted(name), std::move(value));
    return *this;
  }

  std::vector<std::pair<std::string, std::string>> fields_;
};

/// The fields of the context that both benchmarks write: date, commit and compiler.
inline record made_here() {
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S+00:00", std::gmtime(&now));
  return record().set("date", date).set("commit", SCANREC_COMMIT).set("compiler", __VERSION__);
}

/// Writes {"context": ..., "rows": [...]} with one row per line.
inline void write_records(const std::string& path, const record& context,
                          const std::vector<record>& rows) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (!file) throw std::runtime_error("cannot write " + path);
  std::fprintf(file, "{\"context\": %s,\n \"rows\": [", context.text().c_str());
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::fprintf(file, "%s\n  %s", i > 0 ? "," : "", rows[i].text().c_str());
  if (std::fputs("\n ]}\n", file) < 0 || std::fclose(file) != 0)
    throw std::runtime_error("cannot write " + path);
}

}  // namespace bench
