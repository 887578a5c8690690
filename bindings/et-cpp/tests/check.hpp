// What the tests check with.

#ifndef ET_TESTS_CHECK_HPP
#define ET_TESTS_CHECK_HPP

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                 \
      std::exit(1);                                                                                \
    }                                                                                              \
  } while (false)

#endif // ET_TESTS_CHECK_HPP
