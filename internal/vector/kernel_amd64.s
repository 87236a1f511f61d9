//go:build amd64 && !purego

#include "textflag.h"

// Sums of products of unsigned row bytes and signed query bytes, four rows at a time: the query is loaded once for four
// rows, and four chains of additions hide the latency of each other. Nothing beyond the blocks is read.

// SUM4Z adds up the lanes of Z0..Z3 and stores four int32 at (DI).
#define SUM4Z \
	VEXTRACTI64X4 $1, Z0, Y4 \
	VEXTRACTI64X4 $1, Z1, Y5 \
	VEXTRACTI64X4 $1, Z2, Y6 \
	VEXTRACTI64X4 $1, Z3, Y7 \
	VPADDD        Y4, Y0, Y0 \
	VPADDD        Y5, Y1, Y1 \
	VPADDD        Y6, Y2, Y2 \
	VPADDD        Y7, Y3, Y3 \
	SUM4Y

// SUM4Y is the same for Y0..Y3.
#define SUM4Y \
	VPHADDD       Y1, Y0, Y0 \
	VPHADDD       Y3, Y2, Y2 \
	VPHADDD       Y2, Y0, Y0 \
	VEXTRACTI128  $1, Y0, X1 \
	VPADDD        X1, X0, X0 \
	VMOVDQU       X0, (DI)

// MADD16 multiplies 16 bytes of one row, widened to 16 bits so that no sum saturates, by the query in Y8.
#define MADD16(row, acc) \
	VPMOVZXBW row, Y9 \
	VPMADDWD  Y8, Y9, Y9 \
	VPADDD    Y9, acc, acc

// func rowsVNNI(out *int32, rows *uint8, q *int8, stride, blocks, groups int)
TEXT ·rowsVNNI(SB), NOSPLIT, $0-48
	MOVQ out+0(FP), DI
	MOVQ rows+8(FP), SI
	MOVQ q+16(FP), DX
	MOVQ stride+24(FP), R8
	MOVQ blocks+32(FP), R9
	MOVQ groups+40(FP), R10
	LEAQ (R8)(R8*2), R11

rowsVNNIGroup:
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	MOVQ   SI, AX
	MOVQ   DX, BX
	MOVQ   R9, CX

rowsVNNIBlock:
	VMOVDQU64 (BX), Z4
	VMOVDQU64 (AX), Z5
	VMOVDQU64 (AX)(R8*1), Z6
	VMOVDQU64 (AX)(R8*2), Z7
	VMOVDQU64 (AX)(R11*1), Z8
	VPDPBUSD  Z4, Z5, Z0
	VPDPBUSD  Z4, Z6, Z1
	VPDPBUSD  Z4, Z7, Z2
	VPDPBUSD  Z4, Z8, Z3
	ADDQ      $64, AX
	ADDQ      $64, BX
	DECQ      CX
	JNZ       rowsVNNIBlock
	SUM4Z
	ADDQ      $16, DI
	LEAQ      (SI)(R8*4), SI
	DECQ      R10
	JNZ       rowsVNNIGroup
	VZEROUPPER
	RET

// func listVNNI(out *int32, list **uint8, q *int8, blocks, groups int)
TEXT ·listVNNI(SB), NOSPLIT, $0-40
	MOVQ out+0(FP), DI
	MOVQ list+8(FP), SI
	MOVQ q+16(FP), DX
	MOVQ blocks+24(FP), R9
	MOVQ groups+32(FP), R10
	SHLQ $6, R9

listVNNIGroup:
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	MOVQ   0(SI), R11
	MOVQ   8(SI), R12
	MOVQ   16(SI), R13
	MOVQ   24(SI), BX
	XORQ   CX, CX

listVNNIBlock:
	VMOVDQU64 (DX)(CX*1), Z4
	VMOVDQU64 (R11)(CX*1), Z5
	VMOVDQU64 (R12)(CX*1), Z6
	VMOVDQU64 (R13)(CX*1), Z7
	VMOVDQU64 (BX)(CX*1), Z8
	VPDPBUSD  Z4, Z5, Z0
	VPDPBUSD  Z4, Z6, Z1
	VPDPBUSD  Z4, Z7, Z2
	VPDPBUSD  Z4, Z8, Z3
	ADDQ      $64, CX
	CMPQ      CX, R9
	JNE       listVNNIBlock
	SUM4Z
	ADDQ      $16, DI
	ADDQ      $32, SI
	DECQ      R10
	JNZ       listVNNIGroup
	VZEROUPPER
	RET

// func rowsAVX2(out *int32, rows *uint8, q *int8, stride, blocks, groups int)
TEXT ·rowsAVX2(SB), NOSPLIT, $0-48
	MOVQ out+0(FP), DI
	MOVQ rows+8(FP), SI
	MOVQ q+16(FP), DX
	MOVQ stride+24(FP), R8
	MOVQ blocks+32(FP), R9
	MOVQ groups+40(FP), R10
	LEAQ (R8)(R8*2), R11
	SHLQ $2, R9

rowsAVX2Group:
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	MOVQ  SI, AX
	MOVQ  DX, BX
	MOVQ  R9, CX

rowsAVX2Block:
	VPMOVSXBW (BX), Y8
	MADD16((AX), Y0)
	MADD16((AX)(R8*1), Y1)
	MADD16((AX)(R8*2), Y2)
	MADD16((AX)(R11*1), Y3)
	ADDQ $16, AX
	ADDQ $16, BX
	DECQ CX
	JNZ  rowsAVX2Block
	SUM4Y
	ADDQ $16, DI
	LEAQ (SI)(R8*4), SI
	DECQ R10
	JNZ  rowsAVX2Group
	VZEROUPPER
	RET

// func listAVX2(out *int32, list **uint8, q *int8, blocks, groups int)
TEXT ·listAVX2(SB), NOSPLIT, $0-40
	MOVQ out+0(FP), DI
	MOVQ list+8(FP), SI
	MOVQ q+16(FP), DX
	MOVQ blocks+24(FP), R9
	MOVQ groups+32(FP), R10
	SHLQ $6, R9

listAVX2Group:
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	MOVQ  0(SI), R11
	MOVQ  8(SI), R12
	MOVQ  16(SI), R13
	MOVQ  24(SI), BX
	XORQ  CX, CX

listAVX2Block:
	VPMOVSXBW (DX)(CX*1), Y8
	MADD16((R11)(CX*1), Y0)
	MADD16((R12)(CX*1), Y1)
	MADD16((R13)(CX*1), Y2)
	MADD16((BX)(CX*1), Y3)
	ADDQ $16, CX
	CMPQ CX, R9
	JNE  listAVX2Block
	SUM4Y
	ADDQ $16, DI
	ADDQ $32, SI
	DECQ R10
	JNZ  listAVX2Group
	VZEROUPPER
	RET

// func floatsAVX512(a, b *float32, blocks int) float32
TEXT ·floatsAVX512(SB), NOSPLIT, $0-28
	MOVQ   a+0(FP), SI
	MOVQ   b+8(FP), DX
	MOVQ   blocks+16(FP), CX
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	CMPQ   CX, $4
	JLT    floatsAVX512Rest

floatsAVX512Four:
	VMOVUPS     (SI), Z4
	VMOVUPS     64(SI), Z5
	VMOVUPS     128(SI), Z6
	VMOVUPS     192(SI), Z7
	VFMADD231PS (DX), Z4, Z0
	VFMADD231PS 64(DX), Z5, Z1
	VFMADD231PS 128(DX), Z6, Z2
	VFMADD231PS 192(DX), Z7, Z3
	ADDQ        $256, SI
	ADDQ        $256, DX
	SUBQ        $4, CX
	CMPQ        CX, $4
	JGE         floatsAVX512Four

floatsAVX512Rest:
	TESTQ       CX, CX
	JZ          floatsAVX512Sum
	VMOVUPS     (SI), Z4
	VFMADD231PS (DX), Z4, Z0
	ADDQ        $64, SI
	ADDQ        $64, DX
	DECQ        CX
	JMP         floatsAVX512Rest

floatsAVX512Sum:
	VADDPS        Z1, Z0, Z0
	VADDPS        Z3, Z2, Z2
	VADDPS        Z2, Z0, Z0
	VEXTRACTF64X4 $1, Z0, Y1
	VADDPS        Y1, Y0, Y0
	VEXTRACTF128  $1, Y0, X1
	VADDPS        X1, X0, X0
	VHADDPS       X0, X0, X0
	VHADDPS       X0, X0, X0
	VMOVSS        X0, ret+24(FP)
	VZEROUPPER
	RET

// func floatsAVX2(a, b *float32, blocks int) float32
TEXT ·floatsAVX2(SB), NOSPLIT, $0-28
	MOVQ  a+0(FP), SI
	MOVQ  b+8(FP), DX
	MOVQ  blocks+16(FP), CX
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	CMPQ  CX, $2
	JLT   floatsAVX2Rest

floatsAVX2Two:
	VMOVUPS     (SI), Y4
	VMOVUPS     32(SI), Y5
	VMOVUPS     64(SI), Y6
	VMOVUPS     96(SI), Y7
	VFMADD231PS (DX), Y4, Y0
	VFMADD231PS 32(DX), Y5, Y1
	VFMADD231PS 64(DX), Y6, Y2
	VFMADD231PS 96(DX), Y7, Y3
	ADDQ        $128, SI
	ADDQ        $128, DX
	SUBQ        $2, CX
	CMPQ        CX, $2
	JGE         floatsAVX2Two

floatsAVX2Rest:
	TESTQ       CX, CX
	JZ          floatsAVX2Sum
	VMOVUPS     (SI), Y4
	VMOVUPS     32(SI), Y5
	VFMADD231PS (DX), Y4, Y0
	VFMADD231PS 32(DX), Y5, Y1

floatsAVX2Sum:
	VADDPS       Y1, Y0, Y0
	VADDPS       Y3, Y2, Y2
	VADDPS       Y2, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VADDPS       X1, X0, X0
	VHADDPS      X0, X0, X0
	VHADDPS      X0, X0, X0
	VMOVSS       X0, ret+24(FP)
	VZEROUPPER
	RET

// func fetch(at *uint8, blocks int)
TEXT ·fetch(SB), NOSPLIT, $0-16
	MOVQ at+0(FP), SI
	MOVQ blocks+8(FP), CX

fetchBlock:
	PREFETCHT0 (SI)
	ADDQ       $64, SI
	DECQ       CX
	JNZ        fetchBlock
	RET
