#include "textflag.h"

// MIX is a line of the mixing step in two groups of eight lanes: x = (x-y-z) ^ z>>n, with t for the shifted number.
// A processor computes both groups in little more time than one, since each line waits for the one before.
#define MIX(shift, n, x, y, z, t, x2, y2, z2, t2) \
	VPSUBD y, x, x      \
	VPSUBD y2, x2, x2   \
	VPSUBD z, x, x      \
	VPSUBD z2, x2, x2   \
	shift  $n, z, t     \
	shift  $n, z2, t2   \
	VPXOR  t, x, x      \
	VPXOR  t2, x2, x2

// STEP is the mixing step, mix in hash.go.
#define STEP(a, b, c, t, a2, b2, c2, t2) \
	MIX(VPSRLD, 13, a, b, c, t, a2, b2, c2, t2) \
	MIX(VPSLLD, 8, b, c, a, t, b2, c2, a2, t2)  \
	MIX(VPSRLD, 13, c, a, b, t, c2, a2, b2, t2) \
	MIX(VPSRLD, 12, a, b, c, t, a2, b2, c2, t2) \
	MIX(VPSLLD, 16, b, c, a, t, b2, c2, a2, t2) \
	MIX(VPSRLD, 5, c, a, b, t, c2, a2, b2, t2)  \
	MIX(VPSRLD, 3, a, b, c, t, a2, b2, c2, t2)  \
	MIX(VPSLLD, 10, b, c, a, t, b2, c2, a2, t2) \
	MIX(VPSRLD, 15, c, a, b, t, c2, a2, b2, t2)

DATA constants<>+0(SB)/4, $1315423911 // seed
DATA constants<>+4(SB)/4, $231232     // padX
DATA constants<>+8(SB)/4, $1232       // padY
GLOBL constants<>(SB), RODATA|NOPTR, $12

// func hashLanes(to *[lanes]uint32, items *[lanes]int32, x, r uint32)
TEXT ·hashLanes(SB), NOSPLIT, $0-24
	MOVQ to+0(FP), DI
	MOVQ items+8(FP), SI

	// a is x, b the item, c is r; h is Y3 and Y11, and the pads are Y4, Y12 and Y5, Y13.
	MOVL         x+16(FP), AX
	VMOVD        AX, X0
	VPBROADCASTD X0, Y0
	VMOVDQA      Y0, Y8
	VMOVDQU      (SI), Y1
	VMOVDQU      32(SI), Y9
	MOVL         r+20(FP), AX
	VMOVD        AX, X2
	VPBROADCASTD X2, Y2
	VMOVDQA      Y2, Y10
	VPBROADCASTD constants<>+0(SB), Y3
	VPXOR        Y0, Y3, Y3
	VPXOR        Y2, Y3, Y3
	VPXOR        Y9, Y3, Y11
	VPXOR        Y1, Y3, Y3
	VPBROADCASTD constants<>+4(SB), Y4
	VMOVDQA      Y4, Y12
	VPBROADCASTD constants<>+8(SB), Y5
	VMOVDQA      Y5, Y13

	// The five steps of hash3.
	STEP(Y0, Y1, Y3, Y6, Y8, Y9, Y11, Y14)
	STEP(Y2, Y4, Y3, Y6, Y10, Y12, Y11, Y14)
	STEP(Y5, Y0, Y3, Y6, Y13, Y8, Y11, Y14)
	STEP(Y1, Y4, Y3, Y6, Y9, Y12, Y11, Y14)
	STEP(Y5, Y2, Y3, Y6, Y13, Y10, Y11, Y14)
	VMOVDQU Y3, (DI)
	VMOVDQU Y11, 32(DI)
	VZEROUPPER
	RET
