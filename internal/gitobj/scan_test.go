package gitobj

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/millrace/millrace/internal/core"
)

// packer writes packs that git would not.
type packer struct {
	bytes.Buffer
	objects uint32
	offsets []int64
}

func (p *packer) head(kind byte, size int64) {
	p.objects++
	p.offsets = append(p.offsets, int64(packHeader+p.Len()))
	b := kind<<4 | byte(size&0xf)
	for size >>= 4; size > 0; size >>= 7 {
		p.WriteByte(b | 0x80)
		b = byte(size & 0x7f)
	}
	p.WriteByte(b)
}

func (p *packer) deflate(content []byte) {
	z := zlib.NewWriter(p)
	_, _ = z.Write(content)
	_ = z.Close()
}

func (p *packer) blob(content []byte) {
	p.head(byte(core.ObjectBlob), int64(len(content)))
	p.deflate(content)
}

// copies adds a delta that copies an earlier entry, of size bytes, several times.
func (p *packer) copies(base int, size int64, times int) {
	delta := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(size)), uint64(size)*uint64(times))
	for range times {
		delta = append(delta, 0xf0, byte(size), byte(size>>8), byte(size>>16)) // from its beginning, size bytes
	}
	p.head(entryOffsetDelta, int64(len(delta)))
	distance := p.offsets[len(p.offsets)-1] - p.offsets[base]
	b := []byte{byte(distance & 0x7f)}
	for distance >>= 7; distance > 0; distance >>= 7 {
		distance--
		b = append([]byte{0x80 | byte(distance&0x7f)}, b...)
	}
	p.Write(b)
	p.deflate(delta)
}

// pack returns all of it.
func (p *packer) pack() []byte {
	b := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), p.objects)
	b = append(b, p.Bytes()...)
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

const tooMany = 14 << 20 // of zeros

// bombs are packs that cost more than they weigh, and the limits that they meet.
func bombs() map[string]struct {
	pack  []byte
	limit string
} {
	type bomb = struct {
		pack  []byte
		limit string
	}
	out := map[string]bomb{}
	base := make([]byte, tooMany)
	var p packer
	p.blob(base)
	for n := range 3 {
		p.copies(0, tooMany, 50-n)
	}
	out["one base copied 50 times"] = bomb{p.pack(), "git_object"}
	p = packer{}
	p.head(byte(core.ObjectBlob), 101<<20)
	p.deflate(base) // it says more than it has
	out["a blob that says it is large"] = bomb{p.pack(), "git_object"}
	p = packer{}
	p.head(byte(core.ObjectTree), 1<<50)
	p.deflate(base[:100])
	out["a tree that says it is very large"] = bomb{p.pack(), "git_object"}
	p = packer{}
	p.blob(base[:1000])
	p.head(entryNamedDelta, 20)
	p.Write(make([]byte, idBytes))
	p.deflate(binary.AppendUvarint(binary.AppendUvarint(nil, 200<<20), 10))
	out["a delta of a large object of the repository"] = bomb{p.pack(), "git_object"}
	p = packer{}
	p.blob(base)
	for range 100 {
		p.copies(0, tooMany, 7) // 98 MiB each; that they are equal is found only when they are made
	}
	out["many large objects of one base"] = bomb{p.pack(), "git_unpacked"}
	p = packer{}
	p.blob([]byte("x"))
	p.objects = 1 << 30
	out["objects without end"] = bomb{p.pack(), "git_memory"}
	return out
}

func TestAPackThatCostsMoreThanItWeighsIsRefusedBeforeGitMakesIt(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Children.Bytes = 2 << 30 })
	for name, b := range bombs() {
		if len(b.pack) > 64<<10 {
			t.Fatalf("%s: %d bytes", name, len(b.pack))
		}
		err := r.push(b.pack, nil)
		large, isLarge := errors.AsType[core.TooLarge](err)
		used, isUsed := errors.AsType[core.Exhausted](err)
		if (!isLarge || large.Limit != b.limit) && (!isUsed || used.Limit != b.limit) {
			t.Errorf("%s: %v, not %s", name, err, b.limit)
		}
		if used := r.children.shares[forPush].lately(asker{tenant: 1}); used > 20e9 {
			t.Errorf("%s: programs have used %v", name, used)
		}
	}
	if files := r.files(); len(files) != 0 {
		t.Errorf("left are %q", files)
	}
}

func TestTheLargestObjectIsASetting(t *testing.T) {
	s := newSource(t)
	s.commit("large", noise(3<<20, 1))
	for most, ok := range map[int64]bool{3 << 20: true, 3<<20 - 1: false} {
		r := newRig(t, func(o *Options) { o.MaxObject = most })
		err := r.push(s.pack("main"), []core.ObjectID{s.id("main")})
		if got, refused := errors.AsType[core.TooLarge](err); refused == ok || refused && (got.Limit != "git_object" || got.Max != most || !strings.Contains(got.Field, "3145728")) {
			t.Errorf("with %d: %v", most, err)
		}
	}
}

// TestAScanPassesWhatItReads gives packs in pieces of many sizes, whole ones and others.
func TestAScanPassesWhatItReads(t *testing.T) {
	s := newSource(t)
	for i := range 20 {
		s.commit("f", strings.Repeat("line\n", 100+i)+noise(1000, uint64(i)))
	}
	s.git("tag", "-a", "-m", "t", "t")
	whole := s.pack("--all")
	thin := s.pack("main", "^main~3")
	for name, pack := range map[string][]byte{
		"whole": whole, "thin": thin, "cut": whole[:len(whole)/2], "longer": append(bytes.Clone(whole), "and so on"...),
		"no pack": []byte("PACK and so on, for some time"), "empty": nil, "flipped": append(append(bytes.Clone(whole[:40]), whole[40]^0x55), whole[41:]...),
	} {
		for how, in := range map[string]io.Reader{
			"at once": bytes.NewReader(pack), "halves": iotest.HalfReader(bytes.NewReader(pack)), "bytes": iotest.OneByteReader(bytes.NewReader(pack)),
		} {
			most := int64(0)
			sc := scan{need: func(n int64) error { most = max(most, n); return nil }, limits: scanLimits{object: 1 << 20, usual: 1 << 20, streamed: 1 << 10}}
			from, end := sc.start(in)
			got, err := io.ReadAll(from)
			end()
			if err != nil || !bytes.Equal(got, pack) {
				t.Errorf("%s, %s: %d bytes of %d, %v", name, how, len(got), len(pack), err)
			}
			if name == "whole" && (sc.objects != 61 || most < 1<<20 || most > 2<<20) {
				t.Errorf("%s: %d objects, %d bytes of memory", how, sc.objects, most)
			}
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, b := range bombs() {
		if len(b.pack) < 1<<10 {
			f.Add(b.pack)
		}
	}
	f.Fuzz(func(t *testing.T, pack []byte) {
		sc := scan{need: func(int64) error { return nil }, limits: scanLimits{object: 1 << 20, usual: 1, streamed: 1}}
		from, end := sc.start(bytes.NewReader(pack))
		got, err := io.ReadAll(from)
		end()
		if err == nil && !bytes.Equal(got, pack) {
			t.Errorf("%d bytes of %d passed", len(got), len(pack))
		}
	})
}
