package vector

import (
	"fmt"
	"slices"
	"strings"
)

// blockBytes is what the assembly takes at a time. Rows are padded to a multiple of it.
const blockBytes = 64

// bias is added to a signed code for storing it: the instructions multiply unsigned bytes by signed ones.
const bias = 128

// Kernel is one implementation of the dot products. Integers are equal in all of them; float32 sums agree within
// 1e-5 · |a| · |b|.
type Kernel struct {
	name string
	kind kernelKind
}

// kernelKind says which code a Kernel runs.
type kernelKind uint8

const (
	kindGo kernelKind = iota
	kindAVX2
	kindVNNI
)

// pureGo is the kernel without assembly, which every machine and build has.
var pureGo = Kernel{name: "purego", kind: kindGo}

// String returns the kernel's name as the configuration spells it.
func (k *Kernel) String() string { return k.name }

// ScanBytes is how many bytes of codes are scanned as fast as a graph of them is walked, with the recall that is promised of
// a walk. Source: BenchmarkScanOrWalk, and docs/decisions/0017.
func (k *Kernel) ScanBytes() int64 {
	return map[kernelKind]int64{kindVNNI: 8 << 20, kindAVX2: 3 << 20, kindGo: 2 << 20}[k.kind]
}

// Kernels lists what this machine and build can run, fastest first. The last is always purego.
func Kernels() []*Kernel { return append(assembled(), &pureGo) }

// Select returns the kernel of a name: vnni, avx2 or purego; empty or auto is the fastest of this machine. A name that
// this machine or build cannot run is an error.
func Select(name string) (*Kernel, error) {
	all := Kernels()
	if name == "" || name == "auto" {
		return all[0], nil
	}
	var names []string
	for _, k := range all {
		if k.name == name {
			return k, nil
		}
		names = append(names, k.name)
	}
	if !slices.Contains([]string{"vnni", "avx2", "purego"}, name) {
		return nil, fmt.Errorf("vector kernel %q must be one of vnni, avx2, purego", name)
	}
	return nil, fmt.Errorf("vector kernel %q: this machine or build has only %s", name, strings.Join(names, ", "))
}

// DotBytes returns Σ (row[i]−128) · q[i]. Row holds codes as stored, q is signed; both have one length.
func (k *Kernel) DotBytes(row []uint8, q []int8) int32 {
	row = row[:len(q)]
	whole := len(q) &^ (blockBytes - 1)
	var sum [1]int32
	if whole > 0 {
		k.list(sum[:], []*uint8{&row[0]}, q[:whole])
	}
	out := sum[0] + dotBytesGo(row[whole:], q[whole:])
	for _, v := range q {
		out -= bias * int32(v)
	}
	return out
}

// DotFloats returns Σ a[i] · b[i] of two slices of one length.
func (k *Kernel) DotFloats(a, b []float32) float32 {
	b = b[:len(a)]
	whole := len(a) &^ 15
	if whole == 0 || k.kind == kindGo {
		return dotFloatsGo(a, b)
	}
	return k.floats(a[:whole], b[:whole]) + dotFloatsGo(a[whole:], b[whole:])
}

// dotBytesGo returns Σ row[i] · q[i], without the correction for the bias.
func dotBytesGo(row []uint8, q []int8) int32 {
	var sum int32
	for i, v := range q {
		sum += int32(row[i]) * int32(v)
	}
	return sum
}

// dotFloatsGo sums in four lanes, which bounds the error as the vector instructions do.
func dotFloatsGo(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}

// rowsGo fills out with the raw sums of rows that lie one after another, each stride bytes long.
func rowsGo(out []int32, rows []uint8, q []int8) {
	stride := len(q)
	for i := range out {
		out[i] = dotBytesGo(rows[i*stride:(i+1)*stride], q)
	}
}
