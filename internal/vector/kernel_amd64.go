//go:build amd64 && !purego

package vector

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

var (
	vnni = Kernel{name: "vnni", kind: kindVNNI}
	avx2 = Kernel{name: "avx2", kind: kindAVX2}
)

// assembled lists the kernels in assembly that this machine runs, fastest first. x/sys/cpu reports an instruction set
// only where the operating system keeps its registers.
func assembled() []*Kernel {
	var out []*Kernel
	x := cpu.X86
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512VNNI && x.HasAVX2 && x.HasFMA {
		out = append(out, &vnni)
	}
	if x.HasAVX2 && x.HasFMA {
		out = append(out, &avx2)
	}
	return out
}

// rows fills out with the raw sums Σ row[i]·q[i] of len(out) rows that lie one after another, each len(q) bytes long, a
// multiple of the block.
func (k *Kernel) rows(out []int32, rows []uint8, q []int8) {
	if len(out) == 0 || len(q) == 0 {
		clear(out)
		return
	}
	_ = rows[len(out)*len(q)-1]
	if k.kind == kindGo {
		rowsGo(out, rows, q)
		return
	}
	if groups := len(out) / 4; groups > 0 {
		if k.kind == kindVNNI {
			rowsVNNI(&out[0], &rows[0], &q[0], len(q), len(q)/blockBytes, groups)
		} else {
			rowsAVX2(&out[0], &rows[0], &q[0], len(q), len(q)/blockBytes, groups)
		}
	}
	if done := len(out) &^ 3; done < len(out) {
		var list [3]*uint8
		rest := len(out) - done
		for i := range rest {
			list[i] = &rows[(done+i)*len(q)]
		}
		k.list(out[done:], list[:rest], q)
	}
}

// list fills out with the raw sums of the rows that begin where list points, each len(q) bytes long, a multiple of the
// block. Out and list have one length.
func (k *Kernel) list(out []int32, list []*uint8, q []int8) {
	if len(list) == 0 || len(q) == 0 {
		clear(out)
		return
	}
	out = out[:len(list)]
	if k.kind == kindGo {
		for i, p := range list {
			out[i] = dotBytesGo(unsafe.Slice(p, len(q)), q)
		}
		return
	}
	if groups := len(list) / 4; groups > 0 {
		k.group(&out[0], &list[0], q, groups)
	}
	if done := len(list) &^ 3; done < len(list) {
		var sums [4]int32
		last := [4]*uint8{list[len(list)-1], list[len(list)-1], list[len(list)-1], list[len(list)-1]}
		copy(last[:], list[done:])
		k.group(&sums[0], &last[0], q, 1)
		copy(out[done:], sums[:])
	}
}

// group fills out with the raw sums of 4·groups rows.
func (k *Kernel) group(out *int32, list **uint8, q []int8, groups int) {
	if k.kind == kindVNNI {
		listVNNI(out, list, &q[0], len(q)/blockBytes, groups)
	} else {
		listAVX2(out, list, &q[0], len(q)/blockBytes, groups)
	}
}

// floats returns Σ a[i]·b[i] of lengths that are a multiple of 16, not zero.
func (k *Kernel) floats(a, b []float32) float32 {
	if k.kind == kindVNNI {
		return floatsAVX512(&a[0], &b[0], len(a)/16)
	}
	return floatsAVX2(&a[0], &b[0], len(a)/16)
}

// rowsVNNI and rowsAVX2 fill out with the raw sums of 4·groups rows, each blocks·blockBytes bytes
// long, of which one begins stride bytes after the other. The list forms take a pointer to each row
// instead.
//
//go:noescape
func rowsVNNI(out *int32, rows *uint8, q *int8, stride, blocks, groups int)

//go:noescape
func listVNNI(out *int32, list **uint8, q *int8, blocks, groups int)

//go:noescape
func rowsAVX2(out *int32, rows *uint8, q *int8, stride, blocks, groups int)

//go:noescape
func listAVX2(out *int32, list **uint8, q *int8, blocks, groups int)

// floatsAVX512 and floatsAVX2 return the dot product of 16·blocks numbers.
//
//go:noescape
func floatsAVX512(a, b *float32, blocks int) float32

//go:noescape
func floatsAVX2(a, b *float32, blocks int) float32

// fetch asks for blocks of memory, one at least, that will be read soon. It reads nothing, and none of it need be there.
//
//go:noescape
func fetch(at *uint8, blocks int)
