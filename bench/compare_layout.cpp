// SPDX-License-Identifier: BSD-3-Clause
// Padding in front of the code of a comparison module, which shifts the addresses of that code.
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
// Linkers put this section before all other code.
asm(".pushsection .text.unlikely,\"ax\"\n.skip " TEXT(SKIPPED) ", 0x90\n.popsection");
