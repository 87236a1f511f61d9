package gitobj

import (
	"bytes"
	"encoding/binary"
	"errors"
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

// edited applies edits to copies of a pack and its index. Each takes four bytes: which file, with what is done, a place, and a
// value. So an input is short, mostly makes sense, and is quickly made smaller.
func edited(content, idx, edits []byte) (c, x []byte) {
	files := [2][]byte{bytes.Clone(content), bytes.Clone(idx)}
	for ; len(edits) >= 4; edits = edits[4:] {
		b := files[edits[0]&1]
		if len(b) == 0 {
			continue
		}
		at := int(binary.BigEndian.Uint16(edits[1:])) % len(b)
		switch edits[0] >> 1 & 3 {
		case 0:
			b[at] = edits[3]
		case 1:
			b[at] ^= 1 << (edits[3] & 7)
		case 2:
			copy(b[at:], b[int(edits[3])*len(b)/256:][:min(8, len(b)-int(edits[3])*len(b)/256)])
		case 3:
			files[edits[0]&1] = b[:at]
		}
	}
	return files[0], files[1]
}

// FuzzPack reads a pack and an index with a few edits. What fails does so as damage, or as what is not read; what is found is of
// one of git's types, and only a tag has a target; a tag's head is within its limit.
func FuzzPack(f *testing.F) {
	content, idx := small(f)
	for _, seed := range [][]byte{
		{},
		{0, 0, 12, 0xff},
		{1, 0, 8, 0xff},
		{1, 0, 0, 0},
		{6, 0, 40, 0},
		{7, 4, 10, 0},
		{2, 0, 13, 7, 2, 0, 14, 7},
		{4, 0, 12, 128},
		{5, 4, 30, 255},
		{1, 0xff, 0xff, 1, 0, 0xff, 0xff, 1},
		{0, 0, 12, 0x6f, 0, 0, 13, 0x7f},
		{0, 0, 12, 0x7f},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, edits []byte) {
		if len(edits) > 64 {
			return
		}
		p := readable(edited(content, idx, edits))
		if p == nil {
			return
		}
		for i := range min(p.count(), 64) {
			var id core.ObjectID
			if p.name(i, &id) != nil {
				continue
			}
			found, kind, target, err := p.lookup(id)
			known(t, err)
			valid := kind == core.ObjectCommit || kind == core.ObjectTree || kind == core.ObjectBlob || kind == core.ObjectTag
			if found && (err != nil || !valid) || !target.IsZero() && kind != core.ObjectTag {
				t.Errorf("%s is found: %v, of type %v, with the target %s, %v", id, found, kind, target, err)
			}
			if len(edits) == 0 && !found {
				t.Errorf("%s is not found: %v", id, err)
			}
		}
		for at := int64(0); at < min(p.size, 128); at++ {
			kind, err := p.typeAt(at)
			known(t, err)
			if err != nil || kind != core.ObjectTag {
				continue
			}
			head, err := p.headAt(at)
			known(t, err)
			if len(head) > tagBytes {
				t.Errorf("the head of the tag at %d has %d bytes", at, len(head))
			}
		}
	})
}

// small returns a pack of commits, trees, blobs, deltas and tags of tags, with its index. They are files, so that an input
// that failed once means the same on every machine.
func small(t testing.TB) (content, idx []byte) {
	t.Helper()
	content, err := os.ReadFile("testdata/small.pack")
	if err == nil {
		idx, err = os.ReadFile("testdata/small.idx")
	}
	if err != nil {
		t.Fatal(err)
	}
	return content, idx
}

// known holds an error to those that reading a pack may end with.
func known(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	_, damaged := errors.AsType[*DamagedError](err)
	_, large := errors.AsType[core.TooLarge](err)
	if !damaged && !large {
		t.Errorf("%T: %v", err, err)
	}
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
