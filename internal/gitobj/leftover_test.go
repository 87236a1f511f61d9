package gitobj

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// rootPack is a pack of one commit of an empty tree, made without git, and the commit's id. A parent that is not zero makes
// it one that is not whole.
func rootPack(t *testing.T, message string, parent core.ObjectID) ([]byte, core.ObjectID) {
	t.Helper()
	object := func(kind string, content []byte) core.ObjectID {
		return core.ObjectID(sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", kind, len(content)), content...)))
	}
	tree := object("tree", nil)
	text := "tree " + hex.EncodeToString(tree[:]) + "\n"
	if !parent.IsZero() {
		text += "parent " + parent.String() + "\n"
	}
	text += "author a <a@a> 1700000000 +0000\ncommitter c <c@c> 1700000000 +0000\n\n" + message + "\n"
	var b bytes.Buffer
	b.WriteString("PACK")
	_ = binary.Write(&b, binary.BigEndian, []uint32{2, 2})
	for _, o := range []struct {
		kind    byte
		content []byte
	}{{1, []byte(text)}, {2, nil}} {
		n := len(o.content)
		head := o.kind<<4 | byte(n&15)
		for n >>= 4; n > 0; n >>= 7 {
			b.WriteByte(head | 0x80)
			head = byte(n & 0x7f)
		}
		b.WriteByte(head)
		z := zlib.NewWriter(&b)
		_, _ = z.Write(o.content)
		_ = z.Close()
	}
	sum := sha1.Sum(b.Bytes())
	b.Write(sum[:])
	return b.Bytes(), object("commit", []byte(text))
}

// TestOfManyPushesOnlyWhatTheManifestNamesIsLeft ends pushes in every way they can end. When what is staged has outlived
// its time, the files are those of the manifest's packs, all of them and no other. GIT_PUSHES says how many.
func TestOfManyPushesOnlyWhatTheManifestNamesIsLeft(t *testing.T) {
	pushes := 24
	if n, err := strconv.Atoi(os.Getenv("GIT_PUSHES")); err == nil {
		pushes = n
	}
	r := newRig(t)
	want := map[string]core.ObjectID{}
	refused := 0
	for i := range pushes {
		parent := core.ObjectID{}
		if i%8 == 5 {
			parent[0] = 1
		}
		pack, id := rootPack(t, strconv.Itoa(i), parent)
		body := bytes.NewReader(pack)
		switch i % 8 {
		case 6:
			body = bytes.NewReader(flip(pack, len(pack)/2))
		case 7:
			body = bytes.NewReader(pack[:len(pack)-30])
		}
		p, err := r.Begin(t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if err = p.Receive(t.Context(), body); err == nil {
			err = p.hasAll(t.Context(), id)
		}
		if _, ok := errors.AsType[*FailedError](err); err != nil && (!ok || i%8 < 5) {
			t.Fatalf("push %d: %v", i, err)
		} else if err != nil {
			refused++
			p.Close()
			continue
		}
		kept, _, ok, err := p.Keep(t.Context())
		if err != nil || !ok {
			t.Fatalf("push %d: %v", i, err)
		}
		switch i % 8 {
		case 0, 1: // applied
			want[packName(kept.Digest)] = id
			r.m.add(place, kept)
			if err := p.Publish(); err != nil {
				t.Fatal(err)
			}
		case 2: // refused by the entry
			refused++
		case 3: // applied, and the answer was lost
			want[packName(kept.Digest)] = id
			r.m.add(place, kept)
			p.Abandon()
		case 4: // the entry was lost, and its answer too
			refused++
			p.Abandon()
		default:
			t.Fatalf("push %d was taken", i)
		}
		p.Close()
	}
	if 2*refused < pushes {
		t.Errorf("%d of %d were refused", refused, pushes)
	}
	r.settled()
	r.m.set(func() { r.m.now += 3_600_001 })
	if err := r.Sweep(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	r.settled()
	r.wantOnly(want)
}

// wantOnly wants the files of these packs, and the commit in each.
func (r *rig) wantOnly(want map[string]core.ObjectID) {
	t := r.t
	t.Helper()
	files := map[string]int{}
	for _, f := range r.files() {
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(f), ".pack"), ".idx")
		if _, ok := want[name]; !ok || filepath.Dir(f) != filepath.Join(objectsDir, packDir) {
			t.Errorf("left is %s", f)
		}
		files[name]++
	}
	for name, id := range want {
		if files[name] != 2 || r.typeOf(id) != core.ObjectCommit {
			t.Errorf("of %s there are %d files, its commit is there as %s", name, files[name], r.typeOf(id))
		}
	}
}
