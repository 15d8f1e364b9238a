// SPDX-License-Identifier: BSD-3-Clause
// Padding before the code of compare_module.cpp and a benchmark, which moves it to other addresses.
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
// Linkers put this section before all other code.
asm(".pushsection .text.unlikely,\"ax\"\n.skip " TEXT(SKIPPED) ", 0x90\n.popsection");
