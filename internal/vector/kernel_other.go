//go:build !amd64 || purego

package vector

import "unsafe"

// assembled lists no kernel: this build has no assembly.
func assembled() []*Kernel { return nil }

func (k *Kernel) rows(out []int32, rows []uint8, q []int8) { rowsGo(out, rows, q) }

func (k *Kernel) list(out []int32, list []*uint8, q []int8) {
	for i, p := range list {
		out[i] = dotBytesGo(unsafe.Slice(p, len(q)), q)
	}
}

func (k *Kernel) floats(a, b []float32) float32 { return dotFloatsGo(a, b) }

// fetch does nothing: without assembly there is no way to ask for memory early.
func fetch(*uint8, int) {}
