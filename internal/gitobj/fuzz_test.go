package gitobj

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// readable opens a pack that is in memory; nil when its index makes no sense.
func readable(content, idx []byte) *pack {
	x, err := openIndex(bytes.NewReader(idx), "fuzz.idx", int64(len(idx)))
	if err != nil {
		return nil
	}
	return &pack{index: x, r: bytes.NewReader(content), file: "fuzz.pack", size: int64(len(content))}
}

func FuzzPack(f *testing.F) {
	needGit(f)
	s := history(f, rand.New(rand.NewPCG(5, 6)), 6)
	content := s.pack("--all")
	good, err := indexed(f, content)
	if err != nil {
		f.Fatal(err)
	}
	idx, err := os.ReadFile(good.files[1].(diskFile).Name())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content, idx)
	f.Fuzz(func(t *testing.T, content, idx []byte) {
		p := readable(content, idx)
		if p == nil {
			return
		}
		for i := range min(p.count(), 200) {
			var id core.ObjectID
			if p.name(i, &id) != nil {
				continue
			}
			_, _, _, _ = p.lookup(id)
		}
		for at := int64(0); at < min(p.size, 200); at++ {
			if _, err := p.typeAt(at); err == nil {
				_, _ = p.headAt(at)
			}
		}
	})
}

func FuzzDelta(f *testing.F) {
	f.Add([]byte("hello world"), []byte{11, 5, 0x90, 5})
	f.Add([]byte{}, binary.AppendUvarint(nil, 1<<40))
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		if out, err := applyDelta(base, delta); err == nil && len(out) > tagBytes {
			t.Errorf("%d bytes", len(out))
		}
	})
}
