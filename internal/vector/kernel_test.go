package vector

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// plain is the definition: each stored byte less the bias, times the query's.
func plain(row []uint8, q []int8) int32 {
	var sum int64
	for i := range q {
		sum += (int64(row[i]) - bias) * int64(q[i])
	}
	return int32(sum)
}

func TestEveryKernelGivesTheSameInteger(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []int{1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 384, 385, 768, 1000, 1536, 4095, 4096}
	for _, n := range lengths {
		for _, fill := range []string{"random", "largest", "smallest", "opposite"} {
			row, q := make([]uint8, n), make([]int8, n)
			for i := range row {
				switch fill {
				case "random":
					row[i], q[i] = uint8(1+r.IntN(255)), int8(r.IntN(255)-127)
				case "largest":
					row[i], q[i] = 255, 127
				case "smallest":
					row[i], q[i] = 1, -127
				case "opposite":
					row[i], q[i] = 255, -127
				}
			}
			want := plain(row, q)
			for _, k := range Kernels() {
				if got := k.DotBytes(row, q); got != want {
					t.Errorf("%s, %d %s numbers: %d, want %d", k, n, fill, got, want)
				}
			}
		}
	}
}

func TestRowsOneAfterAnotherAndByListGiveWhatSingleRowsDo(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, stride := range []int{64, 128, 384, 4096} {
		q := make([]int8, stride)
		for i := range q {
			q[i] = int8(r.IntN(255) - 127)
		}
		fix := fixOf(q)
		for n := range 14 {
			rows := make([]uint8, n*stride)
			for i := range rows {
				rows[i] = uint8(1 + r.IntN(255))
			}
			list := make([]*uint8, n)
			for i := range list {
				list[i] = &rows[(n-1-i)*stride]
			}
			for _, k := range Kernels() {
				one, many := make([]int32, n), make([]int32, n)
				k.rows(one, rows, q)
				k.list(many, list, q)
				for i := range n {
					want := plain(rows[i*stride:(i+1)*stride], q)
					if one[i]-fix != want || many[n-1-i]-fix != want {
						t.Fatalf("%s, stride %d, row %d of %d: %d and %d, want %d", k, stride, i, n, one[i]-fix, many[n-1-i]-fix, want)
					}
				}
			}
		}
	}
}

func TestFloatKernelsAgreeWithinTheirTolerance(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := range 300 {
		a, b := make([]float32, n), make([]float32, n)
		for i := range a {
			a[i], b[i] = float32(r.NormFloat64()), float32(r.NormFloat64()*math.Exp(r.NormFloat64()))
		}
		checkFloats(t, a, b)
	}
}

func checkFloats(t *testing.T, a, b []float32) {
	t.Helper()
	var want, aa, bb float64
	for i := range a {
		want += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	for _, k := range Kernels() {
		if got := float64(k.DotFloats(a, b)); math.Abs(got-want) > 1e-5*math.Sqrt(aa*bb) {
			t.Errorf("%s, %d numbers: %v, want %v", k, len(a), got, want)
		}
	}
}

func TestSelectRefusesWhatTheMachineCannotRun(t *testing.T) {
	for _, k := range Kernels() {
		if got, err := Select(k.String()); err != nil || got != k {
			t.Errorf("Select(%q) = %v, %v", k, got, err)
		}
	}
	if got, err := Select("auto"); err != nil || got != Kernels()[0] {
		t.Errorf("auto gave %v, %v, want the fastest", got, err)
	}
	if _, err := Select("sse9"); err == nil {
		t.Error("a kernel that there is not was selected")
	}
}

func TestAKernelThatIsSlowerScansLess(t *testing.T) {
	const exact = 5000 * 384 // bytes of codes that each kernel scans: no walk misses any of them
	last := int64(1 << 62)
	for _, k := range []*Kernel{{kind: kindVNNI}, {kind: kindAVX2}, &pureGo} {
		if n := k.ScanBytes(); n < exact || n >= last {
			t.Errorf("kind %d scans up to %d bytes; at least %d, and less than %d of a faster one", k.kind, n, exact, last)
		}
		last = k.ScanBytes()
	}
}

func FuzzKernels(f *testing.F) {
	f.Add([]byte{255, 127, 1, 129, 0, 128}, uint8(3))
	f.Add(make([]byte, 600), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, off uint8) {
		n := len(data) / 2
		at := min(int(off)%64, n)
		row, q := data[at:n], make([]int8, n-at)
		for i := range q {
			q[i] = max(int8(data[n+at+i]), -127)
		}
		want := plain(row, q)
		for _, k := range Kernels() {
			if got := k.DotBytes(row, q); got != want {
				t.Fatalf("%s: %d, want %d", k, got, want)
			}
		}
		m := len(data) / 8
		a, b := make([]float32, m), make([]float32, m)
		for i := range a {
			a[i], b[i] = small(data[8*i:]), small(data[8*i+4:])
		}
		checkFloats(t, a, b)
	})
}

// small reads a finite number whose squares do not overflow.
func small(b []byte) float32 {
	x := math.Float32frombits(binary.LittleEndian.Uint32(b))
	if x != x || math.Abs(float64(x)) > 1e12 || math.Abs(float64(x)) < 1e-12 {
		return 1
	}
	return x
}

func BenchmarkDotRows(b *testing.B) {
	rows, q, out := make([]uint8, 128*384), make([]int8, 384), make([]int32, 128)
	for _, k := range Kernels() {
		b.Run(k.String(), func(b *testing.B) {
			b.SetBytes(int64(len(rows)))
			for b.Loop() {
				k.rows(out, rows, q)
			}
		})
	}
}
