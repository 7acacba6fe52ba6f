// Include it first in a source whose results must not depend on the machine: no product and sum become one
// fused operation there, which rounds once instead of twice. GCC fuses across statements, clang within one.
#pragma once

#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#else
#error "how this compiler is kept from fusing products and sums is not known"
#endif
