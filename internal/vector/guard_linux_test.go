package vector

import (
	"syscall"
	"testing"
	"unsafe"
)

// guarded returns n bytes whose neighbours on both sides of one end may not be read: at their start if front, else at
// their end.
func guarded(t *testing.T, n int, front bool) []byte {
	t.Helper()
	page := syscall.Getpagesize()
	body := (n + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, body+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(m) })
	for _, p := range [][]byte{m[:page], m[page+body:]} {
		if err := syscall.Mprotect(p, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	if front {
		return m[page : page+n]
	}
	return m[page+body-n : page+body]
}

func TestKernelsReadNothingBesideTheirRows(t *testing.T) {
	for _, front := range []bool{true, false} {
		for _, n := range []int{1, 7, 63, 64, 65, 96, 127, 128, 384, 389, 4096} {
			row, qb := guarded(t, n, front), guarded(t, n, front)
			for i := range row {
				row[i], qb[i] = 255, 0x81
			}
			q := unsafe.Slice((*int8)(unsafe.Pointer(&qb[0])), n)
			for _, k := range Kernels() {
				if got, want := k.DotBytes(row, q), int32(-127*127*n); got != want {
					t.Errorf("%s, %d numbers at the edge: %d, want %d", k, n, got, want)
				}
			}
			fb, gb := guarded(t, 4*n, front), guarded(t, 4*n, front)
			a := unsafe.Slice((*float32)(unsafe.Pointer(&fb[0])), n)
			b := unsafe.Slice((*float32)(unsafe.Pointer(&gb[0])), n)
			for i := range a {
				a[i], b[i] = 1, 2
			}
			for _, k := range Kernels() {
				if got := k.DotFloats(a, b); got != float32(2*n) {
					t.Errorf("%s, %d floats at the edge: %v", k, n, got)
				}
			}
		}
		for rows := 1; rows <= 9; rows++ {
			m, qb := guarded(t, rows*128, front), guarded(t, 128, front)
			q := unsafe.Slice((*int8)(unsafe.Pointer(&qb[0])), 128)
			out := make([]int32, rows)
			list := make([]*uint8, rows)
			for i := range list {
				list[i] = &m[i*128]
			}
			for _, k := range Kernels() {
				k.rows(out, m, q)
				k.list(out, list, q)
			}
		}
	}
}
