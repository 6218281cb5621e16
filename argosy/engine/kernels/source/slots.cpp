// Parses lines of slots: `<count> v1 v2 … <count> v1 …`, one record per line.
//
//   text     2 7 9 1 0.5 \n        slots: whole numbers, floats
//   counts   2 1                   one row per line
//   ints     7 9     floats  0.5   in the order of the text
//
// Stops at an invalid line; Python code produces the error message.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "common.h"

namespace {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The end of a word: a blank, or the end of the line.
inline bool is_end(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

inline const char* skip_blanks(const char* at) {
  while (*at == ' ' || *at == '\t' || *at == '\r') ++at;
  return at;
}

// Every parser below returns the end of the word, or null if it is not a valid number.

const char* read_count(const char* at, int32_t* count) {
  int64_t value = 0;
  const char* first = at;
  for (; is_digit(*at) && at - first < 10; ++at) value = value * 10 + (*at - '0');
  if (at == first || !is_end(*at) || value < 1 || value > INT32_MAX) return nullptr;
  *count = static_cast<int32_t>(value);
  return at;
}

// -2^63 to 2^64 - 1; ids of the upper half become negative, bit for bit, as in Paddle.
const char* read_int(const char* at, int64_t* out) {
  const bool negative = *at == '-';
  if (*at == '-' || *at == '+') ++at;
  const char* first = at;
  uint64_t value = 0;
  for (; is_digit(*at); ++at) {
    const uint64_t digit = static_cast<uint64_t>(*at - '0');
    if (value > (UINT64_MAX - digit) / 10) return nullptr;
    value = value * 10 + digit;
  }
  if (at == first || !is_end(*at) || (negative && value > uint64_t{1} << 63)) return nullptr;
  *out = static_cast<int64_t>(negative ? 0 - value : value);
  return at;
}

// The slow path: many digits, large exponents, nan and inf.
const char* read_any_float(const char* at, float* out) {
  for (const char* c = at; !is_end(*c); ++c) {
    if (*c == 'x' || *c == 'X' || *c == '(' || *c == '\v' || *c == '\f') return nullptr;  // only strtod accepts it
  }
  char* end = nullptr;
  const double value = std::strtod(at, &end);
  if (is_end(*at) || end == at || !is_end(*end)) return nullptr;
  *out = static_cast<float>(value);
  return end;
}

// Up to 19 digits below 2^53 and a power of ten up to 22: both are exact doubles, so the result is rounded once.
const char* read_float(const char* at, float* out) {
  static const double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const char* const whole = at;
  const bool negative = *at == '-';
  if (*at == '-' || *at == '+') ++at;
  uint64_t digits = 0;
  int count = 0, power = 0;
  for (; is_digit(*at); ++at, ++count) digits = digits * 10 + static_cast<uint64_t>(*at - '0');
  if (*at == '.') {
    for (++at; is_digit(*at); ++at, ++count, --power) digits = digits * 10 + static_cast<uint64_t>(*at - '0');
  }
  if (count == 0 || count > 19 || digits >= uint64_t{1} << 53) return read_any_float(whole, out);
  if (*at == 'e' || *at == 'E') {
    ++at;
    const bool below = *at == '-';
    if (*at == '-' || *at == '+') ++at;
    const char* first = at;
    int exponent = 0;
    for (; is_digit(*at) && at - first < 5; ++at) exponent = exponent * 10 + (*at - '0');
    if (at == first) return nullptr;
    power += below ? -exponent : exponent;
  }
  if (!is_end(*at) || power < -22 || power > 22) return read_any_float(whole, out);
  const double value = power < 0 ? static_cast<double>(digits) / kPowers[-power]
                                 : static_cast<double>(digits) * kPowers[power];
  *out = static_cast<float>(negative ? -value : value);
  return at;
}

}  // namespace

// Reads `lines` lines, each of which ends with '\n'. Returns the number of valid lines before the first invalid one.
// The buffers must hold as many numbers as the text can contain; `used` gets the number of ints and floats.
ARGOSY_API int64_t argosy_parse_slots(const char* text, int64_t lines, int64_t slots, const uint8_t* is_float,
                                      int32_t* counts, int64_t* ints, float* floats, int64_t* used) {
  int64_t *next_int = ints, line = 0;
  float* next_float = floats;
  const char* at = text;
  for (; line < lines; ++line) {
    for (int64_t slot = 0; slot < slots && at != nullptr; ++slot) {
      int32_t* const count = counts + line * slots + slot;
      at = read_count(skip_blanks(at), count);
      for (int32_t i = 0; at != nullptr && i < *count; ++i) {
        at = skip_blanks(at);
        at = is_float[slot] ? read_float(at, next_float++) : read_int(at, next_int++);
      }
    }
    if (at == nullptr || *(at = skip_blanks(at)) != '\n') break;
    ++at;
  }
  used[0] = next_int - ints;
  used[1] = next_float - floats;
  return line;
}
